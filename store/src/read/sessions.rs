//! Sessions as they are shown and listed.

use std::str::FromStr as _;

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use undolog_core::{json::shown_from, reason::Reason, state::SessionState};
use uuid::Uuid;

use super::{
    only_of,
    page::{Page, Paging, Until, page_bytes, read_max, time_of},
};
use crate::{error::StepError, payload, pool::Store, step::Caller, tenant::Tenant};

/// A session as it is shown.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are those of the wire's Session")]
pub struct SessionView {
    pub session_id: Uuid,
    pub org_id: Uuid,
    pub project_id: Option<Uuid>,
    pub external_run_id: Option<String>,
    pub agent_name: Option<String>,
    pub state: String,
    pub tool_calls_total: i32,
    pub compensations_total: i32,
    pub approvals_pending: i32,
    pub started_at: DateTime<Utc>,
    pub completed_at: Option<DateTime<Utc>>,
    pub failed_at: Option<DateTime<Utc>>,
    pub failure_reason: Option<String>,
    /// JSON, as it was given.
    pub metadata: Vec<u8>,
    pub principal: String,
    pub implicit: bool,
    pub lease_expires_at: Option<DateTime<Utc>>,
    pub residue_count: i32,
    pub unverified_count: i32,
    pub next_position: i32,
    pub next_step_index: i32,
    pub settled_at: Option<DateTime<Utc>>,
    pub dead_letters_open: i64,
}

#[derive(Debug, FromRow)]
pub(super) struct SessionShown {
    session_id: Uuid,
    org_id: Uuid,
    project_id: Option<Uuid>,
    external_run_id: Option<String>,
    agent_name: Option<String>,
    state: String,
    tool_calls_total: i32,
    compensations_total: i32,
    approvals_pending: i32,
    started_at: DateTime<Utc>,
    completed_at: Option<DateTime<Utc>>,
    failed_at: Option<DateTime<Utc>>,
    failure_reason: Option<String>,
    failure_reason_raw: Option<Vec<u8>>,
    metadata_text: String,
    metadata_raw: Option<Vec<u8>>,
    principal: String,
    implicit: bool,
    lease_expires_at: Option<DateTime<Utc>>,
    residue_count: i32,
    unverified_count: i32,
    last_position: i32,
    max_step: i32,
    settled_at: Option<DateTime<Utc>>,
    dead_letters_open: i64,
    matched: i64,
}

impl SessionShown {
    pub(super) fn view(self) -> Result<SessionView, StepError> {
        let reason_raw = self.failure_reason_raw;
        Ok(SessionView {
            session_id: self.session_id,
            org_id: self.org_id,
            project_id: self.project_id,
            external_run_id: self.external_run_id,
            agent_name: self.agent_name,
            state: self.state,
            tool_calls_total: self.tool_calls_total,
            compensations_total: self.compensations_total,
            approvals_pending: self.approvals_pending,
            started_at: self.started_at,
            completed_at: self.completed_at,
            failed_at: self.failed_at,
            failure_reason: self
                .failure_reason
                .map(|shown| shown_from(&shown, reason_raw.as_deref())),
            metadata: payload::text(&self.metadata_text, self.metadata_raw.as_deref())?,
            principal: self.principal,
            implicit: self.implicit,
            lease_expires_at: self.lease_expires_at,
            residue_count: self.residue_count,
            unverified_count: self.unverified_count,
            next_position: self.last_position.saturating_add(1),
            next_step_index: self.max_step.saturating_add(1),
            settled_at: self.settled_at,
            dead_letters_open: self.dead_letters_open,
        })
    }
}

/// An entry of a session's undo stack.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are those of the wire's UndoEntry")]
pub struct UndoView {
    pub undo_id: Uuid,
    pub effect_id: Uuid,
    pub attempt: i32,
    pub position: i32,
    pub compensation_fn: String,
    pub compensation_version: String,
    /// JSON, as it was rendered.
    pub compensation_args: Vec<u8>,
    pub state: String,
    pub retry_count: i16,
    pub max_retries: i32,
    pub retry_backoff_ms: i32,
    pub last_error: Option<String>,
    pub skip_reason: Option<String>,
    pub registered_at: DateTime<Utc>,
    pub compensated_at: Option<DateTime<Utc>>,
    pub next_try_at: Option<DateTime<Utc>>,
    /// The arguments are too large to stand here.
    pub args_left_out: bool,
}

#[derive(Debug, FromRow)]
pub(crate) struct UndoShown {
    undo_id: Uuid,
    effect_id: Uuid,
    attempt: i32,
    position: i32,
    compensation_fn: String,
    compensation_version: String,
    args_text: Option<String>,
    args_raw: Option<Vec<u8>>,
    args_left_out: bool,
    state: String,
    retry_count: i16,
    max_retries: i32,
    retry_backoff_ms: i32,
    last_error: Option<String>,
    last_error_raw: Option<Vec<u8>>,
    skip_reason: Option<String>,
    registered_at: DateTime<Utc>,
    compensated_at: Option<DateTime<Utc>>,
    next_try_at: Option<DateTime<Utc>>,
    pub(super) matched: i64,
}

impl UndoShown {
    pub(crate) fn view(self) -> Result<UndoView, StepError> {
        let error_raw = self.last_error_raw;
        let args = match &self.args_text {
            Some(text) => payload::text(text, self.args_raw.as_deref())?,
            None => Vec::new(),
        };
        Ok(UndoView {
            undo_id: self.undo_id,
            effect_id: self.effect_id,
            attempt: self.attempt,
            position: self.position,
            compensation_fn: self.compensation_fn,
            compensation_version: self.compensation_version,
            compensation_args: args,
            state: self.state,
            retry_count: self.retry_count,
            max_retries: self.max_retries,
            retry_backoff_ms: self.retry_backoff_ms,
            last_error: self.last_error.map(|shown| shown_from(&shown, error_raw.as_deref())),
            skip_reason: self.skip_reason,
            registered_at: self.registered_at,
            compensated_at: self.compensated_at,
            next_try_at: self.next_try_at,
            args_left_out: self.args_left_out,
        })
    }
}

/// A rollback of a session.
#[derive(Debug, Clone, FromRow)]
#[expect(missing_docs, reason = "the fields are those of the wire's Rollback")]
pub struct RollbackView {
    pub rollback_id: Uuid,
    pub kind: String,
    pub state: String,
    pub from_position: i32,
    pub requested_by: String,
    pub reason: String,
    pub created_at: DateTime<Utc>,
    pub due_at: DateTime<Utc>,
    pub finished_at: Option<DateTime<Utc>>,
    pub residue_count: i32,
    pub unverified_count: i32,
}

#[derive(Debug, FromRow)]
pub(super) struct RollbackShown {
    #[sqlx(flatten)]
    pub(super) rollback: RollbackView,
    pub(super) reason_raw: Option<Vec<u8>>,
    pub(super) matched: i64,
}

/// A dead letter of a session.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are those of the wire's DeadLetter")]
pub struct DeadLetterView {
    pub dead_letter_id: Uuid,
    pub session_id: Uuid,
    pub effect_id: Uuid,
    pub undo_id: Option<Uuid>,
    pub rollback_id: Option<Uuid>,
    pub reason: String,
    pub detail: String,
    pub created_at: DateTime<Utc>,
    pub closed_at: Option<DateTime<Utc>>,
    pub closed_by: Option<String>,
    pub resolution: Option<String>,
    /// What was said when it was settled.
    pub note: Option<String>,
}

#[derive(Debug, FromRow)]
pub(crate) struct DeadLetterShown {
    dead_letter_id: Uuid,
    session_id: Uuid,
    effect_id: Uuid,
    undo_id: Option<Uuid>,
    rollback_id: Option<Uuid>,
    reason: String,
    detail: String,
    detail_raw: Option<Vec<u8>>,
    created_at: DateTime<Utc>,
    closed_at: Option<DateTime<Utc>>,
    closed_by: Option<String>,
    resolution: Option<String>,
    note: Option<String>,
}

impl From<DeadLetterShown> for DeadLetterView {
    fn from(row: DeadLetterShown) -> Self {
        Self {
            dead_letter_id: row.dead_letter_id,
            session_id: row.session_id,
            effect_id: row.effect_id,
            undo_id: row.undo_id,
            rollback_id: row.rollback_id,
            reason: row.reason,
            detail: shown_from(&row.detail, row.detail_raw.as_deref()),
            created_at: row.created_at,
            closed_at: row.closed_at,
            closed_by: row.closed_by,
            resolution: row.resolution,
            note: row.note,
        }
    }
}

/// Which sessions are listed.
#[derive(Debug, Clone, Default)]
pub struct SessionFilter {
    /// Only these states; empty: every state.
    pub states: Vec<String>,
    /// Only this external run; empty: every one.
    pub external_run_id: String,
}

/// Sessions, the newest first; settled ones have left the lists.
pub async fn list_sessions(
    store: &Store,
    caller: &Caller,
    filter: &SessionFilter,
    paging: &Paging,
) -> Result<Page<SessionView>, StepError> {
    for state in &filter.states {
        SessionState::from_str(state)
            .map_err(|error| StepError::refuse(Reason::InvalidArgument, error.to_string()))?;
    }
    let limit = paging.rows()?;
    let (micros, session_id) = paging.after::<(i64, Uuid)>("sessions")?.unzip();
    let before = micros.map(time_of).transpose()?;
    let states = (!filter.states.is_empty()).then_some(&filter.states);
    let run = Some(filter.external_run_id.replace('\0', "")).filter(|id| !id.is_empty());
    let principal = only_of(caller);
    let mut tx = Tenant::begin(store, caller.org_id).await?;
    // Every other choice has an index that serves it.
    let until: Option<Until> = if principal.is_some() && run.is_some() {
        sqlx::query_as(include_str!("../../sql/session_list_until.sql"))
            .bind(caller.org_id)
            .bind(states)
            .bind(&run)
            .bind(before)
            .bind(session_id)
            .bind(read_max(states.map_or(SessionState::ALL.len(), Vec::len)))
            .fetch_optional(tx.conn())
            .await?
    } else {
        None
    };
    let (until_at, until_id) = Until::bound(until);
    let rows: Vec<SessionShown> = sqlx::query_as(include_str!("../../sql/session_list.sql"))
        .bind(caller.org_id)
        .bind(principal)
        .bind(states)
        .bind(run)
        .bind(before)
        .bind(session_id)
        .bind(limit + 1)
        .bind(page_bytes())
        .bind(until_at)
        .bind(until_id)
        .fetch_all(tx.conn())
        .await?;
    tx.commit().await?;
    let matched = rows.first().map_or(0, |row| row.matched);
    let views = rows.into_iter().map(SessionShown::view).collect::<Result<Vec<_>, _>>()?;
    let key = |view: &SessionView| (view.started_at.timestamp_micros(), view.session_id);
    Page::cut_at("sessions", views, limit, matched, key, until.map(Until::key))
}
