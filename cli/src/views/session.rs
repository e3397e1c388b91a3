use serde::Serialize;
use undolog_proto::v1::{DeadLetter, Effect, GetSessionResponse, Rollback, Session, UndoEntry};

use super::{Raw, cell, shorten, text, time, time_cell};

/// An agent's run.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the fields are described on the wire")]
pub struct SessionView {
    pub session_id: String,
    pub org_id: String,
    pub project_id: Option<String>,
    pub external_run_id: Option<String>,
    pub agent_name: Option<String>,
    pub state: String,
    pub tool_calls_total: u32,
    pub compensations_total: u32,
    pub approvals_pending: u32,
    pub started_at: Option<String>,
    pub completed_at: Option<String>,
    pub failed_at: Option<String>,
    pub failure_reason: Option<String>,
    pub metadata: Raw,
    pub principal: String,
    pub implicit: bool,
    pub lease_expires_at: Option<String>,
    pub residue_count: u32,
    pub unverified_count: u32,
    pub next_position: u32,
    pub next_step_index: u32,
    pub settled_at: Option<String>,
    pub dead_letters_open: u32,
}

impl From<&Session> for SessionView {
    fn from(from: &Session) -> Self {
        Self {
            session_id: from.session_id.clone(),
            org_id: from.org_id.clone(),
            project_id: text(&from.project_id),
            external_run_id: text(&from.external_run_id),
            agent_name: text(&from.agent_name),
            state: from.state.clone(),
            tool_calls_total: from.tool_calls_total,
            compensations_total: from.compensations_total,
            approvals_pending: from.approvals_pending,
            started_at: time(from.started_at.as_ref()),
            completed_at: time(from.completed_at.as_ref()),
            failed_at: time(from.failed_at.as_ref()),
            failure_reason: text(&from.failure_reason),
            metadata: Raw::new(&from.metadata),
            principal: from.principal.clone(),
            implicit: from.implicit,
            lease_expires_at: time(from.lease_expires_at.as_ref()),
            residue_count: from.residue_count,
            unverified_count: from.unverified_count,
            next_position: from.next_position,
            next_step_index: from.next_step_index,
            settled_at: time(from.settled_at.as_ref()),
            dead_letters_open: from.dead_letters_open,
        }
    }
}

impl SessionView {
    /// The columns of a table of sessions.
    pub const HEADERS: [&'static str; 8] =
        ["session", "state", "agent", "calls", "undone", "open dead letters", "started", "failure"];

    /// The cells of a table's row.
    #[must_use]
    pub fn row(&self) -> Vec<String> {
        vec![
            self.session_id.clone(),
            self.state.clone(),
            self.agent_name.clone().unwrap_or_default(),
            self.tool_calls_total.to_string(),
            self.compensations_total.to_string(),
            self.dead_letters_open.to_string(),
            time_cell(self.started_at.as_ref()),
            shorten(self.failure_reason.as_deref().unwrap_or_default(), 50),
        ]
    }
}

/// One entry of a session's undo stack.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the fields are described on the wire")]
pub struct UndoEntryView {
    pub undo_id: String,
    pub effect_id: String,
    pub attempt: u32,
    pub position: u32,
    pub compensation_fn: String,
    pub compensation_version: String,
    pub compensation_args: Raw,
    pub state: String,
    pub retry_count: u32,
    pub max_retries: u32,
    pub retry_backoff_ms: u32,
    pub last_error: Option<String>,
    pub skip_reason: Option<String>,
    pub registered_at: Option<String>,
    pub compensated_at: Option<String>,
    pub next_try_at: Option<String>,
    pub fields_left_out: Vec<String>,
}

impl From<&UndoEntry> for UndoEntryView {
    fn from(from: &UndoEntry) -> Self {
        Self {
            undo_id: from.undo_id.clone(),
            effect_id: from.effect_id.clone(),
            attempt: from.attempt,
            position: from.position,
            compensation_fn: from.compensation_fn.clone(),
            compensation_version: from.compensation_version.clone(),
            compensation_args: Raw::new(&from.compensation_args),
            state: from.state.clone(),
            retry_count: from.retry_count,
            max_retries: from.max_retries,
            retry_backoff_ms: from.retry_backoff_ms,
            last_error: text(&from.last_error),
            skip_reason: text(&from.skip_reason),
            registered_at: time(from.registered_at.as_ref()),
            compensated_at: time(from.compensated_at.as_ref()),
            next_try_at: time(from.next_try_at.as_ref()),
            fields_left_out: from.fields_left_out.clone(),
        }
    }
}

impl UndoEntryView {
    /// The columns of a table of undo entries.
    pub const HEADERS: [&'static str; 7] =
        ["position", "undo", "compensation", "state", "retries", "args", "note"];

    /// The cells of a table's row.
    #[must_use]
    pub fn row(&self) -> Vec<String> {
        vec![
            self.position.to_string(),
            self.undo_id.clone(),
            self.compensation_fn.clone(),
            self.state.clone(),
            format!("{}/{}", self.retry_count, self.max_retries),
            cell(&self.compensation_args, "compensation_args", &self.fields_left_out),
            shorten(self.skip_reason.as_ref().or(self.last_error.as_ref()).map_or("", |t| t), 60),
        ]
    }
}

/// One request to walk a session's undo stack.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the fields are described on the wire")]
pub struct RollbackView {
    pub rollback_id: String,
    pub kind: String,
    pub state: String,
    pub from_position: u32,
    pub requested_by: String,
    pub reason: Option<String>,
    pub created_at: Option<String>,
    pub due_at: Option<String>,
    pub finished_at: Option<String>,
    pub residue_count: u32,
    pub unverified_count: u32,
}

impl From<&Rollback> for RollbackView {
    fn from(from: &Rollback) -> Self {
        Self {
            rollback_id: from.rollback_id.clone(),
            kind: from.kind.clone(),
            state: from.state.clone(),
            from_position: from.from_position,
            requested_by: from.requested_by.clone(),
            reason: text(&from.reason),
            created_at: time(from.created_at.as_ref()),
            due_at: time(from.due_at.as_ref()),
            finished_at: time(from.finished_at.as_ref()),
            residue_count: from.residue_count,
            unverified_count: from.unverified_count,
        }
    }
}

impl RollbackView {
    /// The columns of a table of rollbacks.
    pub const HEADERS: [&'static str; 6] =
        ["rollback", "kind", "state", "requested by", "created", "finished"];

    /// The cells of a table's row.
    #[must_use]
    pub fn row(&self) -> Vec<String> {
        vec![
            self.rollback_id.clone(),
            self.kind.clone(),
            self.state.clone(),
            self.requested_by.clone(),
            time_cell(self.created_at.as_ref()),
            time_cell(self.finished_at.as_ref()),
        ]
    }
}

/// What only a human can settle.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the fields are described on the wire")]
pub struct DeadLetterView {
    pub dead_letter_id: String,
    pub session_id: String,
    pub effect_id: String,
    pub undo_id: Option<String>,
    pub rollback_id: Option<String>,
    pub reason: String,
    pub detail: String,
    pub created_at: Option<String>,
    pub closed_at: Option<String>,
    pub closed_by: Option<String>,
    pub resolution: Option<String>,
    pub note: Option<String>,
    pub fields_left_out: Vec<String>,
}

impl From<&DeadLetter> for DeadLetterView {
    fn from(from: &DeadLetter) -> Self {
        Self {
            dead_letter_id: from.dead_letter_id.clone(),
            session_id: from.session_id.clone(),
            effect_id: from.effect_id.clone(),
            undo_id: text(&from.undo_id),
            rollback_id: text(&from.rollback_id),
            reason: from.reason.clone(),
            detail: from.detail.clone(),
            created_at: time(from.created_at.as_ref()),
            closed_at: time(from.closed_at.as_ref()),
            closed_by: text(&from.closed_by),
            resolution: text(&from.resolution),
            note: text(&from.note),
            fields_left_out: from.fields_left_out.clone(),
        }
    }
}

impl DeadLetterView {
    /// The columns of a table of dead letters.
    pub const HEADERS: [&'static str; 5] = ["dead letter", "reason", "effect", "closed", "detail"];

    /// The cells of a table's row.
    #[must_use]
    pub fn row(&self) -> Vec<String> {
        vec![
            self.dead_letter_id.clone(),
            self.reason.clone(),
            self.effect_id.clone(),
            self.closed_by.clone().unwrap_or_default(),
            shorten(&self.detail, 60),
        ]
    }
}

/// One recorded tool call.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the fields are described on the wire")]
pub struct EffectView {
    pub effect_id: String,
    pub session_id: String,
    pub tool_id: Option<String>,
    pub tool_name: String,
    pub tool_version: String,
    pub tier: String,
    pub step_index: u32,
    pub step_key: Option<String>,
    pub call_signature: String,
    pub args: Raw,
    pub result: Raw,
    pub state: String,
    pub attempt: u32,
    pub position: u32,
    pub outcome: Option<String>,
    pub error: Option<String>,
    pub duration_ms: u64,
    pub executed_at: Option<String>,
    pub committed_at: Option<String>,
    pub compensated_at: Option<String>,
    pub lease_expires_at: Option<String>,
    pub replay_count: u32,
    pub approval_request_id: Option<String>,
    pub compensation_args: Raw,
    pub fields_left_out: Vec<String>,
}

impl From<&Effect> for EffectView {
    fn from(from: &Effect) -> Self {
        Self {
            effect_id: from.effect_id.clone(),
            session_id: from.session_id.clone(),
            tool_id: text(&from.tool_id),
            tool_name: from.tool_name.clone(),
            tool_version: from.tool_version.clone(),
            tier: from.tier.clone(),
            step_index: from.step_index,
            step_key: text(&from.step_key),
            call_signature: from.call_signature.clone(),
            args: Raw::new(&from.args),
            result: Raw::new(&from.result),
            state: from.state.clone(),
            attempt: from.attempt,
            position: from.position,
            outcome: text(&from.outcome),
            error: text(&from.error),
            duration_ms: from.duration_ms,
            executed_at: time(from.executed_at.as_ref()),
            committed_at: time(from.committed_at.as_ref()),
            compensated_at: time(from.compensated_at.as_ref()),
            lease_expires_at: time(from.lease_expires_at.as_ref()),
            replay_count: from.replay_count,
            approval_request_id: text(&from.approval_request_id),
            compensation_args: Raw::new(&from.compensation_args),
            fields_left_out: from.fields_left_out.clone(),
        }
    }
}

impl EffectView {
    /// The columns of a table of effects.
    pub const HEADERS: [&'static str; 9] =
        ["position", "step", "tool", "tier", "state", "attempt", "effect", "args", "result"];

    /// The cells of a table's row.
    #[must_use]
    pub fn row(&self) -> Vec<String> {
        vec![
            self.position.to_string(),
            self.step_index.to_string(),
            self.tool_name.clone(),
            self.tier.clone(),
            self.state.clone(),
            self.attempt.to_string(),
            self.effect_id.clone(),
            cell(&self.args, "args", &self.fields_left_out),
            cell(&self.result, "result", &self.fields_left_out),
        ]
    }
}

impl SessionView {
    /// The fields of a record.
    #[must_use]
    pub fn record(&self) -> Vec<(&'static str, String)> {
        let count = |number: u32| if number == 0 { String::new() } else { number.to_string() };
        vec![
            ("session", self.session_id.clone()),
            ("state", self.state.clone()),
            ("agent", self.agent_name.clone().unwrap_or_default()),
            ("run", self.external_run_id.clone().unwrap_or_default()),
            ("principal", self.principal.clone()),
            ("started", self.started_at.clone().unwrap_or_default()),
            ("completed", self.completed_at.clone().unwrap_or_default()),
            ("failed", self.failed_at.clone().unwrap_or_default()),
            ("failure", self.failure_reason.clone().unwrap_or_default()),
            ("lease until", self.lease_expires_at.clone().unwrap_or_default()),
            ("calls", self.tool_calls_total.to_string()),
            ("undone", self.compensations_total.to_string()),
            ("approvals pending", count(self.approvals_pending)),
            ("residue", count(self.residue_count)),
            ("unverified", count(self.unverified_count)),
            ("open dead letters", count(self.dead_letters_open)),
            ("settled", self.settled_at.clone().unwrap_or_default()),
        ]
    }
}

/// A session with all that belongs to it.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the fields are described on the wire")]
pub struct SessionDetailView {
    pub session: SessionView,
    pub effects: Vec<EffectView>,
    pub undo_stack: Vec<UndoEntryView>,
    pub rollbacks: Vec<RollbackView>,
    pub dead_letters: Vec<DeadLetterView>,
}

impl SessionDetailView {
    /// From the answers of two calls.
    #[must_use]
    pub fn new(answer: &GetSessionResponse, effects: &[Effect]) -> Self {
        Self {
            session: (&answer.session.clone().unwrap_or_default()).into(),
            effects: effects.iter().map(Into::into).collect(),
            undo_stack: answer.undo_stack.iter().map(Into::into).collect(),
            rollbacks: answer.rollbacks.iter().map(Into::into).collect(),
            dead_letters: answer.dead_letters.iter().map(Into::into).collect(),
        }
    }
}
