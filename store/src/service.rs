//! Ticks: how the journal knows that the service itself was away.

use chrono::{DateTime, Utc};

use crate::{
    catalog::{self, CatalogError},
    error::StepError,
    pool::Store,
};

/// Checks at the start of a process that its role and the schema may serve.
pub async fn check_runtime(store: &Store) -> Result<(), CatalogError> {
    let mut conn = store.pool().acquire().await?;
    catalog::check_runtime(&mut conn).await
}

/// The pool's connections, and how many of them are idle.
#[must_use]
pub fn connections(store: &Store) -> (u32, usize) {
    (store.pool().size(), store.pool().num_idle())
}

/// Records that a service (`engine` or `proxy`) runs, and answers since when it does without a gap.
/// Leases count from the later of their renewal and this time, so an outage of ours expires none.
pub async fn tick(store: &Store, service: &str) -> Result<DateTime<Utc>, StepError> {
    Ok(sqlx::query_scalar("SELECT undolog_tick($1)").bind(service).fetch_one(store.pool()).await?)
}
