//! Rollbacks: their scope, their start, the wait for live grants, and their end. The walk itself is
//! in `walk`.

mod finish;
mod owed;
mod scope;
mod start;

use std::str::FromStr as _;

use chrono::{DateTime, Utc};
pub use finish::{finish, obstacles};
pub(crate) use finish::{recount, report};
pub(crate) use owed::owe;
pub(crate) use scope::{Scoped, scoped};
use serde_json::{Value, json};
use sqlx::FromRow;
pub use start::{LATE, Start, start};
pub(crate) use start::{for_entry, start_late};
use undolog_core::state::{
    RollbackEvent, RollbackState, SessionEvent, SessionState, Subject, rollback::transition,
};
use uuid::Uuid;

use crate::{
    error::StepError,
    session::{LockedSession, one_row},
    tenant::Tenant,
    ticket,
};

/// A rollback. The lease and the fence belong to the walk and are not written by [`save`].
#[derive(Debug, Clone, PartialEq, FromRow)]
#[expect(missing_docs, reason = "the columns are described in the schema")]
pub struct RollbackRow {
    pub rollback_id: Uuid,
    pub session_id: Uuid,
    pub kind: String,
    pub state: String,
    pub from_position: i32,
    pub cause: String,
    pub requested_by: String,
    pub reason: String,
    pub allow_residue: bool,
    pub created_at: DateTime<Utc>,
    pub due_at: DateTime<Utc>,
    pub drained_at: Option<DateTime<Utc>>,
    pub lease_owner: Option<String>,
    pub lease_expires_at: Option<DateTime<Utc>>,
    pub fence: i64,
    pub finished_at: Option<DateTime<Utc>>,
    pub residue_count: i32,
    pub unverified_count: i32,
    pub until_position: Option<i32>,
    pub started_seq: i64,
    pub returns_to: Option<String>,
    pub owes_entries: bool,
}

/// The columns of a rollback, for the statements that read one.
pub(crate) const COLUMNS: &str = "rollback_id, session_id, kind, state, from_position, cause, \
    requested_by, reason, allow_residue, created_at, due_at, drained_at, lease_owner, \
    lease_expires_at, fence, finished_at, residue_count, unverified_count, until_position, \
    started_seq, returns_to, owes_entries";

impl RollbackRow {
    /// The state as the core knows it.
    pub fn state(&self) -> Result<RollbackState, StepError> {
        RollbackState::from_str(&self.state).map_err(|e| StepError::Corrupt(e.to_string()))
    }

    /// A whole rollback ends the session; a partial one gives it back.
    pub fn is_whole(&self) -> bool {
        self.kind == "whole"
    }

    /// It undoes late work only, in a session whose agent goes on afterwards.
    pub fn is_late(&self) -> bool {
        !self.is_whole() && self.cause == LATE
    }

    /// Moves the rollback and records it in the session's events.
    pub fn apply(
        &mut self,
        session: &mut LockedSession,
        event: RollbackEvent,
        actor: &str,
        detail: Value,
    ) -> Result<(), StepError> {
        let from = self.state()?;
        let to = transition(Some(from), event).ok_or_else(|| {
            StepError::Corrupt(format!("rollback {}: {event} from {from}", self.rollback_id))
        })?;
        session.record(
            Subject::Rollback,
            self.rollback_id,
            event.as_str(),
            Some(from.as_str()),
            to.as_str(),
            None,
            actor,
            detail,
        );
        self.state = to.as_str().to_owned();
        Ok(())
    }
}

/// Reads and locks the session's live rollback. The session's lock comes first.
pub async fn live(
    tx: &mut Tenant,
    session: &LockedSession,
) -> Result<Option<RollbackRow>, StepError> {
    let org_id = tx.org_id();
    Ok(sqlx::query_as(&format!(
        "SELECT {COLUMNS} FROM undolog_rollbacks WHERE session_id = $1 AND org_id = $2 \
         AND state IN ('draining', 'walking', 'halted') FOR NO KEY UPDATE"
    ))
    .bind(session.id())
    .bind(org_id)
    .fetch_optional(tx.conn())
    .await?)
}

/// The session is being rolled back for late work only: its agent goes on afterwards.
pub async fn is_late(tx: &mut Tenant, session: &LockedSession) -> Result<bool, StepError> {
    Ok(live_partial(tx, session).await?.is_some_and(|partial| partial.is_late()))
}

/// Reads and locks the partial rollback that runs and will give the session back. A session that is
/// not being rolled back is not asked about.
pub(crate) async fn live_partial(
    tx: &mut Tenant,
    session: &LockedSession,
) -> Result<Option<RollbackRow>, StepError> {
    if session.state() != SessionState::Compensating {
        return Ok(None);
    }
    Ok(live(tx, session).await?.filter(|live| !live.is_whole()))
}

/// Reads and locks the session's newest rollback, whatever its state.
pub async fn newest(
    tx: &mut Tenant,
    session: &LockedSession,
) -> Result<Option<RollbackRow>, StepError> {
    let org_id = tx.org_id();
    Ok(sqlx::query_as(&format!(
        "SELECT {COLUMNS} FROM undolog_rollbacks WHERE session_id = $1 AND org_id = $2 \
         AND state <> 'superseded' ORDER BY started_seq DESC, created_at DESC LIMIT 1 \
         FOR NO KEY UPDATE"
    ))
    .bind(session.id())
    .bind(org_id)
    .fetch_optional(tx.conn())
    .await?)
}

/// Writes back what a step changed of a rollback.
pub async fn save(tx: &mut Tenant, rollback: &RollbackRow) -> Result<(), StepError> {
    let org_id = tx.org_id();
    let done = sqlx::query(include_str!("../../sql/rollback_save.sql"))
        .bind(rollback.rollback_id)
        .bind(org_id)
        .bind(&rollback.kind)
        .bind(&rollback.state)
        .bind(rollback.from_position)
        .bind(rollback.allow_residue)
        .bind(rollback.due_at)
        .bind(rollback.drained_at)
        .bind(rollback.finished_at)
        .bind(rollback.residue_count)
        .bind(rollback.unverified_count)
        .bind(rollback.until_position)
        .bind(&rollback.returns_to)
        .bind(rollback.owes_entries)
        .bind(&rollback.cause)
        .execute(tx.conn())
        .await?;
    one_row(done.rows_affected(), "rollback")
}

/// When the drain can end: `None` when no live grant is left in scope and every unknown effect has
/// had its settling time. Otherwise the time of the last of them, as far as it is known now; a
/// report that comes earlier makes the rollback due earlier.
pub async fn drain_until(
    tx: &mut Tenant,
    session: &LockedSession,
    from_position: i32,
) -> Result<Option<DateTime<Utc>>, StepError> {
    let org_id = tx.org_id();
    let until: Option<DateTime<Utc>> =
        sqlx::query_scalar(include_str!("../../sql/rollback_drain_until.sql"))
            .bind(session.id())
            .bind(org_id)
            .bind(session.row.started_at)
            .bind(from_position)
            .bind(session.now())
            .bind(session.row.settle_ms)
            .bind(session.executed_until())
            .fetch_one(tx.conn())
            .await?;
    Ok(until)
}

/// Makes a live rollback due: at once, or when its drain can end. A halted one is opened again, and
/// so is a whole one that has ended; both drain first. Writes the rollback and its ticket; the
/// session is the caller's to save.
pub async fn make_due(
    tx: &mut Tenant,
    session: &mut LockedSession,
    rollback: &mut RollbackRow,
    actor: &str,
) -> Result<(), StepError> {
    if matches!(rollback.state()?, RollbackState::Halted | RollbackState::Compensated) {
        if rollback.until_position.is_some() {
            return Err(StepError::Corrupt(format!(
                "rollback {} has ended and gave its session back",
                rollback.rollback_id
            )));
        }
        rollback.apply(session, RollbackEvent::Reopened, actor, json!({}))?;
        rollback.finished_at = None;
        rollback.drained_at = None;
    }
    if matches!(session.state(), SessionState::Halted | SessionState::Compensated) {
        session.apply(SessionEvent::Reopened, actor, json!({}))?;
        session.row.settled_at = None;
    }
    rollback.due_at = match rollback.state()? {
        RollbackState::Draining => {
            drain_until(tx, session, rollback.from_position).await?.unwrap_or_else(|| session.now())
        }
        _ => session.now(),
    };
    save(tx, rollback).await?;
    ticket::enqueue_rollback(tx, rollback.rollback_id, rollback.due_at).await
}
