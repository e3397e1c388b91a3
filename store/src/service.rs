//! Ticks: how the journal knows that the service itself was away.

use chrono::{DateTime, Utc};

use crate::{error::StepError, pool::Store};

/// Records that a service (`engine` or `proxy`) runs, and answers since when it does without a gap.
/// Leases count from the later of their renewal and this time, so an outage of ours expires none.
pub async fn tick(store: &Store, service: &str) -> Result<DateTime<Utc>, StepError> {
    Ok(sqlx::query_scalar("SELECT undolog_tick($1)").bind(service).fetch_one(store.pool()).await?)
}

/// Whether the journal can be written to: what a readiness probe asks.
pub async fn is_writable(store: &Store) -> Result<bool, StepError> {
    Ok(sqlx::query_scalar("SELECT NOT pg_is_in_recovery()").fetch_one(store.pool()).await?)
}
