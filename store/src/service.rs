//! Ticks: how the journal knows that the service itself was away.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::{
    catalog::{self, CatalogError},
    error::StepError,
    pool::Store,
    session::LockedSession,
    tenant::Tenant,
};

/// Checks at the start of a process that its role and the schema may serve.
pub async fn check_runtime(store: &Store) -> Result<(), CatalogError> {
    let mut conn = store.pool().acquire().await?;
    catalog::check_process(&mut conn, store.settings()).await
}

/// The pool's connections, and how many of them are idle.
#[must_use]
pub fn connections(store: &Store) -> (u32, usize) {
    (store.pool().size(), store.pool().num_idle())
}

/// Records that engines run, and answers since when they do without a gap. Leases count from the
/// later of their renewal and this time, so an outage of ours expires none.
///
/// # Errors
/// The database could not be reached.
pub async fn tick(store: &Store, service: &str) -> Result<DateTime<Utc>, StepError> {
    let since = sqlx::query_scalar("SELECT undolog_tick($1)").bind(service);
    // Nothing that waits for a connection delays it.
    store.note(since.fetch_one(store.ticks()).await.map_err(StepError::from))
}

/// Writes as a worker does, and changes nothing. When another process does the same right now,
/// there is nothing to wait for.
pub async fn write_as_worker(store: &Store) -> Result<(), StepError> {
    let written = sqlx::query(
        "WITH free AS (SELECT name FROM undolog_schedules WHERE name = 'partitions' \
           FOR UPDATE SKIP LOCKED) \
         UPDATE undolog_schedules s SET name = s.name FROM free WHERE s.name = free.name",
    );
    store.note(written.execute(store.ticks()).await.map(drop).map_err(StepError::from))
}

/// Records that a proxy of an organisation runs. Other organisations' proxies say nothing about it.
///
/// # Errors
/// The database could not be reached.
pub async fn tick_proxy(
    store: &Store,
    org_id: Uuid,
    proxy: Option<Uuid>,
) -> Result<DateTime<Utc>, StepError> {
    let mut tx = Tenant::begin(store, org_id).await?;
    let since = sqlx::query_scalar("SELECT undolog_tick_proxy($1, $2)")
        .bind(org_id)
        .bind(proxy)
        .fetch_one(tx.conn())
        .await?;
    tx.commit().await?;
    Ok(since)
}

/// Whether a proxy with this number has ticked for this organisation.
///
/// # Errors
/// The database could not be reached.
pub async fn is_proxy(store: &Store, org_id: Uuid, proxy: Uuid) -> Result<bool, StepError> {
    let mut tx = Tenant::begin(store, org_id).await?;
    let is_known = sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM undolog_proxies WHERE org_id = $1 AND $2 = ANY (ids))",
    )
    .bind(org_id)
    .bind(proxy)
    .fetch_one(tx.conn())
    .await?;
    tx.commit().await?;
    Ok(is_known)
}

/// Since when everything that a session depends on has run without a gap. `None`: something of it
/// is away.
pub(crate) async fn running_since(
    tx: &mut Tenant,
    session: &LockedSession,
) -> Result<Option<DateTime<Utc>>, StepError> {
    Ok(sqlx::query_scalar("SELECT undolog_running_since($1, $2)")
        .bind(session.row.via_proxy)
        .bind(session.now())
        .fetch_one(tx.conn())
        .await?)
}
