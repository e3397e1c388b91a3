//! A locked session: every step that touches a session holds one.

use std::str::FromStr as _;

use chrono::{DateTime, NaiveDate, Utc};
use serde_json::{Value, json};
use sqlx::FromRow;
use undolog_core::{
    limits::SNAPSHOT_EVERY,
    reason::Reason,
    state::{SessionEvent, SessionState, Subject, session::transition},
};
use uuid::Uuid;

use crate::{error::StepError, events::Event, notify, replay, step::Caller, tenant::Tenant};

/// The columns of a session that steps read or write, with the policies that hold for it.
#[derive(Debug, Clone, PartialEq, FromRow)]
#[expect(missing_docs, reason = "the columns are described in the schema")]
pub struct SessionRow {
    pub session_id: Uuid,
    pub org_id: Uuid,
    pub project_id: Option<Uuid>,
    pub principal: String,
    pub state: String,
    pub implicit: bool,
    pub via_proxy: bool,
    pub session_month: NaiveDate,
    pub signature_version: i16,
    pub numbering: Option<String>,
    pub event_seq: i64,
    pub last_position: i32,
    pub undo_top: Option<i32>,
    pub max_step: i32,
    pub effects_total: i32,
    pub commits_total: i32,
    pub tool_calls_total: i32,
    pub compensations_total: i32,
    pub approvals_pending: i32,
    pub started_at: DateTime<Utc>,
    pub completed_at: Option<DateTime<Utc>>,
    pub failed_at: Option<DateTime<Utc>>,
    pub failure_reason: Option<String>,
    pub failure_reason_raw: Option<Vec<u8>>,
    pub last_executed_at: Option<DateTime<Utc>>,
    pub last_rpc_at: DateTime<Utc>,
    pub lease_ms: Option<i64>,
    pub lease_renewed_at: Option<DateTime<Utc>>,
    pub lease_hold_until: Option<DateTime<Utc>>,
    pub grant_lost_at: Option<DateTime<Utc>>,
    pub lease_failed_at: Option<DateTime<Utc>>,
    pub residue_count: i32,
    pub unverified_count: i32,
    pub settled_at: Option<DateTime<Utc>>,
    pub sealed_at: Option<DateTime<Utc>>,
    pub on_tool_failure: String,
    pub on_rejection: String,
    pub on_unknown: Option<String>,
    pub on_dead_letter: String,
    pub on_step_conflict: String,
    pub on_unregistered_tool: String,
    pub resume_window_seconds: i32,
    pub settle_ms: Option<i64>,
    pub registry_epoch: i64,
    pub default_approval_timeout_seconds: i32,
    pub auto_approve_on_timeout: bool,
    pub notifies: bool,
    pub now: DateTime<Utc>,
    pub lease_from: DateTime<Utc>,
    #[sqlx(default)]
    pub t: DateTime<Utc>,
}

/// A session under its lock. Changes are collected and written by [`LockedSession::save`].
#[derive(Debug)]
pub struct LockedSession {
    /// The row as it stands with this step's changes, the documented counters among them: the
    /// triggers stand aside while a session is locked by a step.
    pub row: SessionRow,
    state: SessionState,
    before: SessionRow,
    /// The states that this step left again: the database checks each move, not their sum.
    passed: Vec<SessionState>,
    events: Vec<Event>,
}

impl LockedSession {
    /// Locks a session of the caller's organisation. `None`: there is none that this caller can
    /// reach (another organisation's id and another agent's session look alike).
    pub async fn lock(
        tx: &mut Tenant,
        session_id: Uuid,
        caller: &Caller,
    ) -> Result<Option<Self>, StepError> {
        let session = Self::lock_any(tx, session_id).await?;
        let reached = session
            .filter(|s| caller.reaches(&s.row.principal) || !crate::guard!("session.principal"));
        Ok(reached)
    }

    /// Like [`LockedSession::lock`], refusing when there is none.
    pub async fn require(
        tx: &mut Tenant,
        session_id: Uuid,
        caller: &Caller,
    ) -> Result<Self, StepError> {
        Self::lock(tx, session_id, caller).await?.ok_or_else(|| not_found(session_id))
    }

    /// Locks a session for the system itself (workers, sweeps).
    pub async fn lock_any(tx: &mut Tenant, session_id: Uuid) -> Result<Option<Self>, StepError> {
        let org_id = tx.org_id();
        let row: Option<SessionRow> = sqlx::query_as(include_str!("../sql/session_lock.sql"))
            .bind(session_id)
            .bind(org_id)
            .fetch_optional(tx.conn())
            .await?;
        row.map(|mut row| {
            row.t = row.now.max(row.started_at).max(row.last_executed_at.unwrap_or(row.now));
            let state = SessionState::from_str(&row.state)
                .map_err(|error| StepError::Corrupt(error.to_string()))?;
            Ok(Self { before: row.clone(), row, state, passed: Vec::new(), events: Vec::new() })
        })
        .transpose()
    }

    /// The session's id.
    pub fn id(&self) -> Uuid {
        self.row.session_id
    }

    /// The step's place in the journal: the database's clock, never before what the session holds.
    /// Calls are found by it, so it does not go back when the clock does. Nothing may wait for it:
    /// that is what [`LockedSession::now`] is for.
    pub fn t(&self) -> DateTime<Utc> {
        self.row.t
    }

    /// No call of the session was recorded after this time, and none before `started_at`. Every
    /// statement that reads them binds both ends, so that it runs on the partitions of these months
    /// alone.
    pub fn executed_until(&self) -> DateTime<Utc> {
        self.row.last_executed_at.unwrap_or_else(|| self.t())
    }

    /// What leases count from: the clock, but not before the engines' last tick. A lease that is
    /// written while the clock is back for a moment, and that no tick saw, must not be over when it
    /// is right again.
    pub fn lease_from(&self) -> DateTime<Utc> {
        self.row.lease_from
    }

    /// The database's clock after the lock: what due times and windows count from and are
    /// compared with.
    pub fn now(&self) -> DateTime<Utc> {
        self.row.now
    }

    /// The state with this step's changes.
    pub fn state(&self) -> SessionState {
        self.state
    }

    /// Moves the session and records it. An illegal move is an error of ours, not of the caller.
    pub fn apply(
        &mut self,
        event: SessionEvent,
        actor: &str,
        detail: Value,
    ) -> Result<(), StepError> {
        let to = transition(Some(self.state), event).ok_or_else(|| {
            StepError::Corrupt(format!("session {}: {event} from {}", self.id(), self.state))
        })?;
        let id = self.id();
        let from = Some(self.state.as_str());
        self.record(Subject::Session, id, event.as_str(), from, to.as_str(), None, actor, detail);
        if to != self.state {
            self.passed.push(self.state);
        }
        if self.state == SessionState::Halted && to != SessionState::Halted {
            self.row.settled_at = None;
        }
        self.state = to;
        self.row.state = to.as_str().to_owned();
        let t = Some(self.t());
        match event {
            SessionEvent::Completed => self.row.completed_at = t,
            SessionEvent::Failed | SessionEvent::RollbackRequested => {
                self.row.failed_at = self.row.failed_at.or(t);
            }
            SessionEvent::Settled => self.row.settled_at = t,
            _ => {}
        }
        Ok(())
    }

    /// Records an event of any subject.
    #[expect(clippy::too_many_arguments, reason = "an event has this many parts")]
    pub fn record(
        &mut self,
        subject: Subject,
        subject_id: Uuid,
        kind: &'static str,
        from: Option<&'static str>,
        to: &'static str,
        attempt: Option<i32>,
        actor: &str,
        detail: Value,
    ) {
        let actor = actor.to_owned();
        self.events.push(Event { subject, subject_id, kind, from, to, attempt, actor, detail });
    }

    /// Calls of one step may differ, by the organisation's policy.
    pub fn shares_steps(&self) -> bool {
        self.row.on_step_conflict == "allow"
    }

    /// An RPC of the session's own principal came: its lease is renewed.
    pub fn touched_by(&mut self, caller: &Caller) {
        if caller.principal != self.row.principal {
            return;
        }
        self.row.last_rpc_at = self.lease_from();
        if self.row.lease_ms.is_some() && self.state.is_live() {
            self.row.lease_renewed_at = Some(self.lease_from());
            self.row.lease_hold_until = None;
        }
    }

    /// The number that the next recorded event of this step gets.
    pub fn next_event_seq(&self) -> i64 {
        self.row.event_seq + i64::try_from(self.events.len()).unwrap_or(i64::MAX) + 1
    }

    /// The next number of the session's one counter of positions.
    pub fn next_position(&mut self) -> i32 {
        self.row.last_position += 1;
        self.row.last_position
    }

    /// An undo entry at this position is open now. Every entry passes here when it is made and when
    /// it moves, so that a walk need not look above the highest of them.
    pub(crate) fn undo_opened(&mut self, position: i32) {
        self.row.undo_top = self.row.undo_top.map(|top| top.max(position));
    }

    /// Approvals became pending (+) or left that state (−): the session awaits approval exactly
    /// while one is pending. A session that comes back has its resume window to be heard from.
    pub fn approvals_changed(&mut self, by: i32, actor: &str) -> Result<(), StepError> {
        self.row.approvals_pending += by;
        let pending = self.row.approvals_pending > 0;
        match (self.state, pending) {
            (SessionState::Active, true) => {
                self.apply(SessionEvent::ApprovalAsked, actor, json!({}))
            }
            (SessionState::AwaitingApproval, false) => {
                self.apply(SessionEvent::ApprovalsCleared, actor, json!({}))?;
                self.hold_for_resume();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Keeps why the session failed; the first reason stays.
    pub fn fail_because(&mut self, reason: &str) {
        if self.row.failure_reason.is_none() && !reason.is_empty() {
            let (shown, raw) = undolog_core::json::show_text(reason);
            self.row.failure_reason = Some(shown);
            self.row.failure_reason_raw = raw;
        }
    }

    /// Gives a session with a lease its resume window from now on.
    pub fn hold_for_resume(&mut self) {
        if self.row.lease_ms.is_some() {
            let window = chrono::Duration::seconds(self.row.resume_window_seconds.into());
            self.row.lease_renewed_at = Some(self.lease_from());
            self.row.lease_hold_until = Some(self.lease_from() + window);
        }
    }

    /// Writes the session and its events. Called once, as the step's last write but tickets.
    pub async fn save(mut self, tx: &mut Tenant) -> Result<(), StepError> {
        let last_seq = self.row.event_seq;
        self.row.event_seq += i64::try_from(self.events.len()).unwrap_or(i64::MAX);
        if self.row == self.before {
            return Ok(());
        }
        // The database checks each move, not their sum.
        for state in self.passed.iter().skip(1) {
            sqlx::query(
                "UPDATE undolog_sessions SET state = $3::text::undolog_session_state \
                 WHERE session_id = $1 AND org_id = $2",
            )
            .bind(self.row.session_id)
            .bind(self.row.org_id)
            .bind(state.as_str())
            .execute(tx.conn())
            .await?;
        }
        self.write(tx, last_seq).await?;
        if self.row.notifies {
            notify::write(tx, &self, &self.events).await?;
        }
        if self.row.commits_total / SNAPSHOT_EVERY > self.before.commits_total / SNAPSHOT_EVERY {
            replay::enqueue(tx, &self.row).await?;
        }
        Ok(())
    }

    async fn write(&self, tx: &mut Tenant, last_seq: i64) -> Result<(), StepError> {
        let (row, events) = (&self.row, &self.events);
        let rows: i64 = sqlx::query_scalar(include_str!("../sql/session_save.sql"))
            .bind(row.session_id)
            .bind(row.org_id)
            .bind(&row.state)
            .bind(row.event_seq)
            .bind(row.last_position)
            .bind(row.max_step)
            .bind(row.effects_total)
            .bind(&row.numbering)
            .bind(row.completed_at)
            .bind(row.failed_at)
            .bind(&row.failure_reason)
            .bind(&row.failure_reason_raw)
            .bind(row.last_executed_at)
            .bind(row.last_rpc_at)
            .bind(row.lease_renewed_at)
            .bind(row.lease_hold_until)
            .bind(row.grant_lost_at)
            .bind(row.lease_failed_at)
            .bind(row.residue_count)
            .bind(row.unverified_count)
            .bind(row.settled_at)
            .bind(row.session_month)
            .bind(last_seq)
            .bind(row.t)
            .bind(events.iter().map(|e| e.kind).collect::<Vec<_>>())
            .bind(events.iter().map(|e| e.subject.as_str()).collect::<Vec<_>>())
            .bind(events.iter().map(|e| e.subject_id).collect::<Vec<_>>())
            .bind(events.iter().map(|e| e.from).collect::<Vec<_>>())
            .bind(events.iter().map(|e| e.to).collect::<Vec<_>>())
            .bind(events.iter().map(|e| e.attempt).collect::<Vec<_>>())
            .bind(events.iter().map(|e| e.actor.as_str()).collect::<Vec<_>>())
            .bind(events.iter().map(|e| &e.detail).collect::<Vec<_>>())
            .bind(row.commits_total)
            .bind(row.tool_calls_total)
            .bind(row.compensations_total)
            .bind(row.approvals_pending)
            .bind(row.undo_top)
            .fetch_one(tx.conn())
            .await?;
        one_row(u64::try_from(rows).unwrap_or_default(), "session")
    }
}

/// Plans the statements that follow for their values, as outside of a step: for one that serves
/// many filters, and is quick only when it is known which of them are not asked for.
pub(crate) async fn plan_for_values(tx: &mut Tenant) -> Result<(), StepError> {
    sqlx::query(
        "SELECT set_config('plan_cache_mode', 'auto', true), \
         set_config('enable_seqscan', 'on', true)",
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// The refusal for a session that this caller cannot reach.
pub fn not_found(session_id: Uuid) -> StepError {
    StepError::refuse(Reason::SessionNotFound, format!("there is no session {session_id}"))
}

/// Checks that a guarded write hit exactly one row.
pub(crate) fn one_row(rows: u64, what: &str) -> Result<(), StepError> {
    if rows == 1 {
        return Ok(());
    }
    Err(StepError::Corrupt(format!("a write of one {what} touched {rows} rows")))
}
