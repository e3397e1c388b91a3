//! What is due, running, halted and paused in an organisation.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use undolog_core::role::Rpc;
use uuid::Uuid;

use super::require_role;
use crate::{error::StepError, pool::Store, step::Caller, tenant::Tenant};

/// A pause of the organisation.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct PauseRow {
    /// Which compensation; empty: every one.
    pub compensation_fn: String,
    /// Since when.
    pub paused_at: DateTime<Utc>,
    /// By whom.
    pub paused_by: String,
    /// For people.
    pub reason: String,
}

/// The circuit breaker of an endpoint's host.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct BreakerRow {
    /// The host.
    pub host: String,
    /// `closed`, `open` or `half_open`.
    pub state: String,
    /// Calls in its window.
    pub calls: i32,
    /// Failed calls in its window.
    pub failures: i32,
    /// When it opened last.
    pub opened_at: Option<DateTime<Utc>>,
}

/// The numbers of an organisation's queue.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueueStatus {
    /// Rollbacks that are due and that nobody holds.
    pub due: i64,
    /// How long the oldest of them has been due.
    pub oldest_due_age_ms: i64,
    /// Rollbacks that a worker holds.
    pub running: i64,
    /// Halted sessions that nobody has settled.
    pub halted: i64,
    /// Open dead letters of sessions that nobody has settled.
    pub dead_letters_open: i64,
    /// Effects of which nobody knows whether they happened.
    pub unknown: i64,
    /// Approval requests that wait for a decision.
    pub approvals_pending: i64,
    /// The organisation's pauses.
    pub pauses: Vec<PauseRow>,
    /// Its breakers.
    pub breakers: Vec<BreakerRow>,
    /// The owner has paused every organisation.
    pub paused_everywhere: bool,
    /// `released`, `raised`, `limited`, `stopped` or `forced`.
    pub brake_state: String,
    /// Nothing fails by its lease before; only while the brake is raised.
    pub brake_hold_until: Option<DateTime<Utc>>,
    /// Notifications that are not sent yet.
    pub notifications_pending: i64,
}

#[derive(Debug, FromRow)]
struct Counts {
    due: i64,
    oldest_due_age_ms: i64,
    running: i64,
    halted: i64,
    dead_letters_open: i64,
    unknown: i64,
    approvals_pending: i64,
    paused_everywhere: bool,
    brake_state: Option<String>,
    brake_hold_until: Option<DateTime<Utc>>,
    notifications_pending: i64,
}

/// Reads the state of the organisation's queue.
///
/// # Errors
/// The role may not, or the database could not be reached.
pub async fn queue_status(store: &Store, caller: &Caller) -> Result<QueueStatus, StepError> {
    require_role(caller, Rpc::GetQueueStatus)?;
    let mut tx = Tenant::begin(store, caller.org_id).await?;
    let status = read(&mut tx, caller.org_id).await?;
    tx.commit().await?;
    Ok(status)
}

async fn read(tx: &mut Tenant, org_id: Uuid) -> Result<QueueStatus, StepError> {
    let counts: Counts = sqlx::query_as(include_str!("../../sql/operate_queue.sql"))
        .bind(org_id)
        .fetch_one(tx.conn())
        .await?;
    let pauses = sqlx::query_as(
        "SELECT compensation_fn, paused_at, paused_by, reason FROM undolog_pauses \
         WHERE org_id = $1 ORDER BY compensation_fn",
    )
    .bind(org_id)
    .fetch_all(tx.conn())
    .await?;
    let breakers = sqlx::query_as(
        "SELECT host, state, calls, failures, opened_at FROM undolog_breakers \
         WHERE org_id = $1 ORDER BY state = 'closed', host LIMIT 500",
    )
    .bind(org_id)
    .fetch_all(tx.conn())
    .await?;
    Ok(QueueStatus {
        due: counts.due,
        oldest_due_age_ms: counts.oldest_due_age_ms,
        running: counts.running,
        halted: counts.halted,
        dead_letters_open: counts.dead_letters_open,
        unknown: counts.unknown,
        approvals_pending: counts.approvals_pending,
        pauses,
        breakers,
        paused_everywhere: counts.paused_everywhere,
        brake_state: counts.brake_state.unwrap_or_else(|| "released".to_owned()),
        brake_hold_until: counts.brake_hold_until,
        notifications_pending: counts.notifications_pending,
    })
}
