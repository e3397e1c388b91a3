//! What is due, running, halted and paused in an organisation.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::FromRow;
use undolog_core::{
    limits::{COUNTED_MAX, PAGE_MAX},
    role::Rpc,
};
use uuid::Uuid;

use super::require_role;
use crate::{
    error::StepError,
    pool::Store,
    read::page::{Paging, to_token},
    step::Caller,
    tenant::Tenant,
};

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

/// The circuit breaker of a route: one compensation at one host.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct BreakerRow {
    /// The compensation.
    pub compensation_fn: String,
    /// Scheme, host and port.
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

#[derive(Debug, FromRow)]
struct PauseShown {
    #[sqlx(flatten)]
    pause: PauseRow,
    matched: i64,
}

/// Reasons of the pauses of one page.
const PAUSE_BYTES_MAX: i64 = 1024 * 1024;

/// The numbers of an organisation's queue, each counted up to [`COUNTED_MAX`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueueStatus {
    /// Rollbacks that are due and that nobody holds.
    pub due: i64,
    /// How long the oldest of them has been due.
    pub oldest_due_age_ms: i64,
    /// Rollbacks that a worker holds.
    pub running: i64,
    /// Rollbacks whose time has not come: for a pause, a breaker, a retry, a call under way.
    pub waiting: i64,
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
    /// More pauses or breakers follow after this token; empty: these are all.
    pub next_token: String,
}

#[derive(Debug, FromRow)]
struct Counts {
    due: i64,
    oldest_due_age_ms: i64,
    running: i64,
    waiting: i64,
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
pub async fn queue_status(
    store: &Store,
    caller: &Caller,
    token: &str,
) -> Result<QueueStatus, StepError> {
    require_role(caller, Rpc::GetQueueStatus)?;
    let mut tx = Tenant::begin(store, caller.org_id).await?;
    let status = read(&mut tx, caller.org_id, token).await?;
    tx.commit().await?;
    Ok(status)
}

/// A breaker's place in the list: whether it is closed, its compensation, its host.
type BreakerPlace = (bool, String, String);

/// Where a page of pauses and breakers ended.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Ended {
    /// The last pause; none: no pauses are left.
    pause: Option<String>,
    /// The last breaker; none: no breakers are left.
    breaker: Option<BreakerPlace>,
}

async fn read(tx: &mut Tenant, org_id: Uuid, token: &str) -> Result<QueueStatus, StepError> {
    let paging = Paging { size: 0, token: token.to_owned() };
    let ended = paging.after::<Ended>("queue")?;
    let counts: Counts = sqlx::query_as(include_str!("../../sql/operate_queue.sql"))
        .bind(org_id)
        .bind(i64::from(COUNTED_MAX))
        .fetch_one(tx.conn())
        .await?;
    let (pauses, last_pause) = match &ended {
        Some(Ended { pause: None, .. }) => (Vec::new(), None),
        ended => pauses(tx, org_id, ended.as_ref().and_then(|e| e.pause.as_deref())).await?,
    };
    let (breakers, last_breaker) = match &ended {
        Some(Ended { breaker: None, .. }) => (Vec::new(), None),
        ended => breakers(tx, org_id, ended.as_ref().and_then(|e| e.breaker.as_ref())).await?,
    };
    let next_token = if last_pause.is_some() || last_breaker.is_some() {
        to_token("queue", &Ended { pause: last_pause, breaker: last_breaker })?
    } else {
        String::new()
    };
    Ok(QueueStatus {
        due: counts.due,
        oldest_due_age_ms: counts.oldest_due_age_ms,
        running: counts.running,
        waiting: counts.waiting,
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
        next_token,
    })
}

/// Pauses after a name, and the last one's name when more follow.
async fn pauses(
    tx: &mut Tenant,
    org_id: Uuid,
    after: Option<&str>,
) -> Result<(Vec<PauseRow>, Option<String>), StepError> {
    let rows: Vec<PauseShown> = sqlx::query_as(include_str!("../../sql/operate_pauses.sql"))
        .bind(org_id)
        .bind(after)
        .bind(i64::from(PAGE_MAX))
        .bind(PAUSE_BYTES_MAX)
        .fetch_all(tx.conn())
        .await?;
    let shown = i64::try_from(rows.len()).unwrap_or(i64::MAX);
    let is_cut = rows.first().is_some_and(|row| row.matched > shown);
    let more = is_cut || shown == i64::from(PAGE_MAX);
    let rows: Vec<PauseRow> = rows.into_iter().map(|row| row.pause).collect();
    let last = rows.last().filter(|_| more).map(|row| row.compensation_fn.clone());
    Ok((rows, last))
}

/// Breakers after a place, those that are not closed first, and the last one's place when more
/// follow.
async fn breakers(
    tx: &mut Tenant,
    org_id: Uuid,
    after: Option<&BreakerPlace>,
) -> Result<(Vec<BreakerRow>, Option<BreakerPlace>), StepError> {
    let rows: Vec<BreakerRow> = sqlx::query_as(
        "SELECT compensation_fn, host, state, calls, failures, opened_at \
         FROM undolog_route_breakers WHERE org_id = $1 \
         AND ($2::bool IS NULL OR (state = 'closed', compensation_fn, host) > ($2, $3, $4)) \
         ORDER BY state = 'closed', compensation_fn, host LIMIT $5",
    )
    .bind(org_id)
    .bind(after.map(|(is_closed, ..)| *is_closed))
    .bind(after.map(|(_, compensation_fn, _)| compensation_fn))
    .bind(after.map(|(.., host)| host))
    .bind(i64::from(PAGE_MAX))
    .fetch_all(tx.conn())
    .await?;
    let last = rows.last().filter(|_| rows.len() == PAGE_MAX as usize);
    let last =
        last.map(|row| (row.state == "closed", row.compensation_fn.clone(), row.host.clone()));
    Ok((rows, last))
}
