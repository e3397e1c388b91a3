//! A worker's claim on a rollback: a lease that ends by itself, and a fence that ends the powers of
//! whoever held it before.

use sqlx::FromRow;
use undolog_core::limits::ROLLBACK_LEASE_MS;
use uuid::Uuid;

use crate::{backlog::WaitsFor, error::StepError, pool::Store, tenant::Tenant, ticket};

/// A held rollback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The organisation.
    pub org_id: Uuid,
    /// Its slug, for its secrets.
    pub org_slug: String,
    /// The rollback.
    pub rollback_id: Uuid,
    /// Its session.
    pub session_id: Uuid,
    /// The number that every write of this holder carries.
    pub fence: i64,
    /// The holder: one name per start of a process.
    pub worker: String,
    /// How long the rollback had been due.
    pub due_age_ms: i64,
}

#[derive(FromRow)]
struct Claimed {
    session_id: Uuid,
    fence: i64,
    org_slug: String,
    due_age_ms: i64,
}

/// Claims a rollback that is due and that nobody holds. `None`: there is nothing to do here now.
///
/// # Errors
/// The database could not be reached.
pub async fn claim(
    store: &Store,
    org_id: Uuid,
    rollback_id: Uuid,
    worker: &str,
) -> Result<Option<Claim>, StepError> {
    crate::crash_point!("worker.before_claim");
    let mut tx = Tenant::begin(store, org_id).await?;
    let claimed: Option<Claimed> = sqlx::query_as(include_str!("../../sql/walk_claim.sql"))
        .bind(rollback_id)
        .bind(org_id)
        .bind(worker)
        .bind(lease_ms())
        .bind(!crate::guard!("walk.lease"))
        .fetch_optional(tx.conn())
        .await?;
    tx.commit().await?;
    crate::crash_point!("worker.after_claim");
    Ok(claimed.map(|c| Claim {
        org_id,
        org_slug: c.org_slug,
        rollback_id,
        session_id: c.session_id,
        fence: c.fence,
        worker: worker.to_owned(),
        due_age_ms: c.due_age_ms,
    }))
}

/// Renews a claim. `false`: somebody else holds the rollback, or nobody does.
///
/// # Errors
/// The database could not be reached.
pub async fn renew(store: &Store, claim: &Claim) -> Result<bool, StepError> {
    let mut tx = Tenant::begin(store, claim.org_id).await?;
    let done = sqlx::query(include_str!("../../sql/walk_renew.sql"))
        .bind(claim.rollback_id)
        .bind(claim.org_id)
        .bind(&claim.worker)
        .bind(claim.fence)
        .bind(lease_ms())
        .execute(tx.conn())
        .await?;
    tx.commit().await?;
    Ok(done.rows_affected() == 1)
}

/// Gives a claim back without a decision, to be looked at again after a while: a step of the walk
/// failed with something that the next try may not meet.
///
/// # Errors
/// The database could not be reached; the lease then ends by itself.
pub async fn postpone(store: &Store, claim: &Claim, wait_ms: i64) -> Result<(), StepError> {
    let mut tx = Tenant::begin(store, claim.org_id).await?;
    let due_at: Option<chrono::DateTime<chrono::Utc>> = sqlx::query_scalar(
        "UPDATE undolog_rollbacks SET lease_owner = NULL, lease_expires_at = NULL, \
         due_at = clock_timestamp() + $4 * interval '1 millisecond', waits_for = $5 \
         WHERE rollback_id = $1 AND org_id = $2 AND fence = $3 RETURNING due_at",
    )
    .bind(claim.rollback_id)
    .bind(claim.org_id)
    .bind(claim.fence)
    .bind(wait_ms)
    .bind(WaitsFor::Worker.as_str())
    .fetch_optional(tx.conn())
    .await?;
    if let Some(due_at) = due_at {
        ticket::enqueue_rollback(&mut tx, claim.rollback_id, due_at).await?;
    }
    tx.commit().await
}

/// The lease of a claim, as the database takes it.
pub(super) const fn lease_ms() -> i64 {
    ROLLBACK_LEASE_MS as i64
}
