use serde::Serialize;
use undolog_proto::v1::{
    Breaker, DeadLetterChange, DeadLetterItem, DeadLettersChanged, GetDeadLetterResponse,
    Notification, Pause, QueueStatus, UndoAttempt, UnknownEffect,
};

use super::{
    DeadLetterView, EffectView, PlannedUndoView, Raw, UndoEntryView, cell, how_to_read, shorten,
    text, time, time_cell, whole,
};

/// A dead letter as it is listed.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the fields are described on the wire")]
pub struct DeadLetterItemView {
    #[serde(flatten)]
    pub dead_letter: DeadLetterView,
    pub tool_name: String,
    pub step_index: u32,
    pub position: u32,
    pub effect_state: String,
    pub session_state: String,
    pub compensation_fn: Option<String>,
    pub last_error: Option<String>,
    pub attempts: u32,
}

impl From<&DeadLetterItem> for DeadLetterItemView {
    fn from(from: &DeadLetterItem) -> Self {
        Self {
            dead_letter: (&from.dead_letter.clone().unwrap_or_default()).into(),
            tool_name: from.tool_name.clone(),
            step_index: from.step_index,
            position: from.position,
            effect_state: from.effect_state.clone(),
            session_state: from.session_state.clone(),
            compensation_fn: text(&from.compensation_fn),
            last_error: text(&from.last_error),
            attempts: from.attempts,
        }
    }
}

impl DeadLetterItemView {
    /// The columns of a table of dead letters.
    pub const HEADERS: [&'static str; 8] =
        ["dead letter", "reason", "tool", "undone by", "calls", "session", "created", "detail"];

    /// The cells of a table's row.
    #[must_use]
    pub fn row(&self) -> Vec<String> {
        let letter = &self.dead_letter;
        vec![
            letter.dead_letter_id.clone(),
            letter.reason.clone(),
            self.tool_name.clone(),
            self.compensation_fn.clone().unwrap_or_default(),
            self.attempts.to_string(),
            letter.session_id.clone(),
            time_cell(letter.created_at.as_ref()),
            shorten(&letter.detail, 60),
        ]
    }

    /// The fields of a record.
    #[must_use]
    pub fn record(&self) -> Vec<(&'static str, String)> {
        let letter = &self.dead_letter;
        let or_empty = |value: &Option<String>| value.clone().unwrap_or_default();
        vec![
            ("dead letter", letter.dead_letter_id.clone()),
            ("reason", letter.reason.clone()),
            ("detail", shorten(&letter.detail, usize::MAX)),
            ("last error", self.last_error.clone().map_or_else(String::new, |e| shorten(&e, 500))),
            ("session", format!("{} ({})", letter.session_id, self.session_state)),
            ("tool", format!("{} at step {}", self.tool_name, self.step_index)),
            ("effect", format!("{} ({})", letter.effect_id, self.effect_state)),
            ("undone by", or_empty(&self.compensation_fn)),
            ("undo entry", or_empty(&letter.undo_id)),
            ("created", or_empty(&letter.created_at)),
            ("closed", or_empty(&letter.closed_at)),
            ("closed by", or_empty(&letter.closed_by)),
            ("resolution", or_empty(&letter.resolution)),
            ("note", letter.note.as_ref().map_or_else(String::new, |n| shorten(n, usize::MAX))),
        ]
    }
}

/// A call of a compensation that was made.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the fields are described on the wire")]
pub struct UndoAttemptView {
    pub undo_attempt_id: String,
    pub round: u32,
    pub number: u32,
    pub outcome: Option<String>,
    pub status: u32,
    pub error: Option<String>,
    pub response_excerpt: String,
    pub response_truncated: bool,
    pub method: String,
    pub url: String,
    pub started_at: Option<String>,
    pub finished_at: Option<String>,
    pub worker: String,
    pub result_known: bool,
}

impl From<&UndoAttempt> for UndoAttemptView {
    fn from(from: &UndoAttempt) -> Self {
        Self {
            undo_attempt_id: from.undo_attempt_id.clone(),
            round: from.round,
            number: from.number,
            outcome: text(&from.outcome),
            status: from.status,
            error: text(&from.error),
            response_excerpt: String::from_utf8_lossy(&from.response_excerpt).into_owned(),
            response_truncated: from.response_truncated,
            method: from.method.clone(),
            url: from.url.clone(),
            started_at: time(from.started_at.as_ref()),
            finished_at: time(from.finished_at.as_ref()),
            worker: from.worker.clone(),
            result_known: from.result_known,
        }
    }
}

impl UndoAttemptView {
    /// The columns of a table of calls.
    pub const HEADERS: [&'static str; 7] =
        ["round", "call", "time", "outcome", "status", "error", "answer"];

    /// The cells of a table's row.
    #[must_use]
    pub fn row(&self) -> Vec<String> {
        vec![
            self.round.to_string(),
            self.number.to_string(),
            time_cell(self.started_at.as_ref()),
            self.outcome.clone().unwrap_or_else(|| "no outcome".to_owned()),
            if self.status == 0 { String::new() } else { self.status.to_string() },
            shorten(self.error.as_deref().unwrap_or_default(), 60),
            shorten(&self.response_excerpt, 60),
        ]
    }
}

/// A dead letter with everything that its operator needs to decide.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the fields are described on the wire")]
pub struct DeadLetterDetailView {
    pub item: DeadLetterItemView,
    pub entry: Option<UndoEntryView>,
    pub effect: EffectView,
    pub attempts: Vec<UndoAttemptView>,
    pub attempts_left_out: u32,
    pub fields_left_out: Vec<String>,
    pub next_call: Option<PlannedUndoView>,
}

impl From<&GetDeadLetterResponse> for DeadLetterDetailView {
    fn from(from: &GetDeadLetterResponse) -> Self {
        Self {
            item: (&from.item.clone().unwrap_or_default()).into(),
            entry: from.entry.as_ref().map(Into::into),
            effect: (&from.effect.clone().unwrap_or_default()).into(),
            attempts: from.attempts.iter().map(Into::into).collect(),
            attempts_left_out: from.attempts_left_out,
            fields_left_out: from.fields_left_out.clone(),
            next_call: from.next_call.as_ref().map(Into::into),
        }
    }
}

impl DeadLetterDetailView {
    /// How what was left out is read.
    #[must_use]
    pub fn how_to_read(&self) -> Vec<String> {
        let effect_id = &self.effect.effect_id;
        let mut commands = how_to_read("effect", effect_id, &self.effect.fields_left_out);
        if let Some(entry) = &self.entry {
            commands.extend(how_to_read("undo_entry", &entry.undo_id, &entry.fields_left_out));
        }
        if let Some(call) = &self.next_call {
            commands.extend(how_to_read("next_call", &call.undo_id, &call.fields_left_out));
        }
        for name in &self.fields_left_out {
            let (of, field) = name.split_once('.').unwrap_or(("", name));
            let undo_id = self.entry.as_ref().map_or("", |entry| &entry.undo_id);
            let (of, id) = match of {
                "effect" => ("effect", effect_id.as_str()),
                "entry" => ("undo_entry", undo_id),
                other => (other, undo_id),
            };
            commands.extend(how_to_read(of, id, &[field.to_owned()]));
        }
        commands
    }
}

/// What became of one dead letter.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the fields are described on the wire")]
pub struct ChangeView {
    pub dead_letter_id: String,
    pub session_id: Option<String>,
    pub changed: bool,
    pub why_not: Option<String>,
}

impl From<&DeadLetterChange> for ChangeView {
    fn from(from: &DeadLetterChange) -> Self {
        Self {
            dead_letter_id: from.dead_letter_id.clone(),
            session_id: text(&from.session_id),
            changed: from.changed,
            why_not: text(&from.why_not),
        }
    }
}

impl ChangeView {
    /// The columns of a table of changes.
    pub const HEADERS: [&'static str; 3] = ["dead letter", "session", "changed"];

    /// The cells of a table's row.
    #[must_use]
    pub fn row(&self) -> Vec<String> {
        let changed = if self.changed { "yes".to_owned() } else { "no".to_owned() };
        vec![
            self.dead_letter_id.clone(),
            self.session_id.clone().unwrap_or_default(),
            self.why_not.as_ref().map_or(changed, |why| format!("no: {why}")),
        ]
    }
}

/// What a bulk verb did, or would do.
#[derive(Debug, Clone, Default, Serialize)]
#[expect(missing_docs, reason = "the fields are described on the wire")]
pub struct ChangesView {
    pub dry_run: bool,
    pub matched: u32,
    pub changed: u32,
    pub more: bool,
    pub changes: Vec<ChangeView>,
}

impl ChangesView {
    /// Adds the answer of one more call.
    pub fn add(&mut self, answer: &DeadLettersChanged) {
        self.matched += answer.matched;
        self.changed += answer.changed;
        self.more = answer.more;
        self.changes.extend(answer.changes.iter().map(ChangeView::from));
    }
}

/// An effect of which nobody knows whether it happened.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the fields are described on the wire")]
pub struct UnknownView {
    pub effect: EffectView,
    pub session_state: String,
    pub lost_at: Option<String>,
    pub granted_at: Option<String>,
    pub probe_answer: Option<String>,
    pub probe_error: Option<String>,
    pub probe_count: u32,
    pub has_probe: bool,
}

impl From<&UnknownEffect> for UnknownView {
    fn from(from: &UnknownEffect) -> Self {
        Self {
            effect: (&from.effect.clone().unwrap_or_default()).into(),
            session_state: from.session_state.clone(),
            lost_at: time(from.lost_at.as_ref()),
            granted_at: time(from.granted_at.as_ref()),
            probe_answer: text(&from.probe_answer),
            probe_error: text(&from.probe_error),
            probe_count: from.probe_count,
            has_probe: from.has_probe,
        }
    }
}

impl UnknownView {
    /// The columns of a table of unknown effects.
    pub const HEADERS: [&'static str; 8] =
        ["effect", "state", "tool", "since", "probe", "session", "session state", "args"];

    /// The cells of a table's row.
    #[must_use]
    pub fn row(&self) -> Vec<String> {
        vec![
            self.effect.effect_id.clone(),
            self.state(),
            self.effect.tool_name.clone(),
            time_cell(self.lost_at.as_ref()),
            self.probed(),
            self.effect.session_id.clone(),
            self.session_state.clone(),
            cell(&self.effect.args, "args", &self.effect.fields_left_out),
        ]
    }

    /// The fields of a record.
    #[must_use]
    pub fn record(&self) -> Vec<(&'static str, String)> {
        let or_empty = |value: &Option<String>| value.clone().unwrap_or_default();
        let effect = &self.effect;
        vec![
            ("effect", effect.effect_id.clone()),
            ("state", self.state()),
            ("since", or_empty(&self.lost_at)),
            ("tool", format!("{} {} ({})", effect.tool_name, effect.tool_version, effect.tier)),
            ("session", format!("{} ({})", effect.session_id, self.session_state)),
            ("step", effect.step_index.to_string()),
            ("attempt", effect.attempt.to_string()),
            ("granted", or_empty(&self.granted_at)),
            ("args", whole(&effect.args, "args", &effect.fields_left_out)),
            ("error", effect.error.as_ref().map_or_else(String::new, |e| shorten(e, 500))),
            ("approval", or_empty(&effect.approval_request_id)),
            ("probe", self.probed()),
        ]
    }

    /// `unknown`, or that it failed and may have taken effect.
    fn state(&self) -> String {
        match self.effect.outcome.as_deref() {
            Some(outcome) if self.effect.state == "failed" => {
                format!("failed ({})", outcome.replace('_', " "))
            }
            _ => self.effect.state.clone(),
        }
    }

    fn probed(&self) -> String {
        let answer = self.probe_answer.as_ref().or(self.probe_error.as_ref());
        match answer {
            Some(answer) => shorten(&format!("{answer} ({}x)", self.probe_count), 40),
            None if self.has_probe => "not asked yet".to_owned(),
            None => "none".to_owned(),
        }
    }
}

/// A webhook.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the fields are described on the wire")]
pub struct NotificationView {
    pub notification_id: String,
    pub session_id: String,
    pub kind: String,
    pub state: String,
    pub body: Raw,
    pub attempts: u32,
    pub last_error: Option<String>,
    pub created_at: Option<String>,
    pub due_at: Option<String>,
    pub finished_at: Option<String>,
    pub replayed_at: Option<String>,
    pub replayed_by: Option<String>,
}

impl From<&Notification> for NotificationView {
    fn from(from: &Notification) -> Self {
        Self {
            notification_id: from.notification_id.clone(),
            session_id: from.session_id.clone(),
            kind: from.kind.clone(),
            state: from.state.clone(),
            body: Raw::new(&from.body),
            attempts: from.attempts,
            last_error: text(&from.last_error),
            created_at: time(from.created_at.as_ref()),
            due_at: time(from.due_at.as_ref()),
            finished_at: time(from.finished_at.as_ref()),
            replayed_at: time(from.replayed_at.as_ref()),
            replayed_by: text(&from.replayed_by),
        }
    }
}

impl NotificationView {
    /// The columns of a table of webhooks.
    pub const HEADERS: [&'static str; 8] =
        ["notification", "kind", "state", "tries", "created", "session", "again by", "error"];

    /// The cells of a table's row.
    #[must_use]
    pub fn row(&self) -> Vec<String> {
        vec![
            self.notification_id.clone(),
            self.kind.clone(),
            self.state.clone(),
            self.attempts.to_string(),
            time_cell(self.created_at.as_ref()),
            self.session_id.clone(),
            self.replayed_by.clone().unwrap_or_default(),
            shorten(self.last_error.as_deref().unwrap_or_default(), 60),
        ]
    }
}

/// What is due, running, halted, paused and dead.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the fields are described on the wire")]
pub struct QueueView {
    pub due: u64,
    pub oldest_due_age_ms: u64,
    pub running: u64,
    pub waiting: u64,
    pub halted: u64,
    pub dead_letters_open: u64,
    pub unknown: u64,
    pub approvals_pending: u64,
    pub notifications_pending: u64,
    pub paused_everywhere: bool,
    pub pauses: Vec<PauseView>,
    pub breakers: Vec<BreakerView>,
    pub brake_state: String,
    pub brake_hold_until: Option<String>,
}

impl From<&QueueStatus> for QueueView {
    fn from(from: &QueueStatus) -> Self {
        Self {
            due: from.due,
            oldest_due_age_ms: from.oldest_due_age_ms,
            running: from.running,
            waiting: from.waiting,
            halted: from.halted,
            dead_letters_open: from.dead_letters_open,
            unknown: from.unknown,
            approvals_pending: from.approvals_pending,
            notifications_pending: from.notifications_pending,
            paused_everywhere: from.paused_everywhere,
            pauses: from.pauses.iter().map(Into::into).collect(),
            breakers: from.breakers.iter().map(Into::into).collect(),
            brake_state: from.brake_state.clone(),
            brake_hold_until: time(from.brake_hold_until.as_ref()),
        }
    }
}

impl QueueView {
    /// The fields of a record.
    #[must_use]
    pub fn record(&self) -> Vec<(&'static str, String)> {
        let everywhere = if self.paused_everywhere { "yes" } else { "" };
        let brake = match &self.brake_hold_until {
            Some(until) => format!("{} until {until}", self.brake_state),
            None => self.brake_state.clone(),
        };
        vec![
            ("due", self.due.to_string()),
            ("oldest due", format!("{} ms", self.oldest_due_age_ms)),
            ("running", self.running.to_string()),
            ("waiting", self.waiting.to_string()),
            ("halted", self.halted.to_string()),
            ("dead letters", self.dead_letters_open.to_string()),
            ("unknown", self.unknown.to_string()),
            ("approvals pending", self.approvals_pending.to_string()),
            ("notifications pending", self.notifications_pending.to_string()),
            ("paused everywhere", everywhere.to_owned()),
            ("brake", brake),
        ]
    }
}

/// A pause.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the fields are described on the wire")]
pub struct PauseView {
    pub compensation_fn: Option<String>,
    pub paused_at: Option<String>,
    pub paused_by: String,
    pub reason: Option<String>,
}

impl From<&Pause> for PauseView {
    fn from(from: &Pause) -> Self {
        Self {
            compensation_fn: text(&from.compensation_fn),
            paused_at: time(from.paused_at.as_ref()),
            paused_by: from.paused_by.clone(),
            reason: text(&from.reason),
        }
    }
}

impl PauseView {
    /// The columns of a table of pauses.
    pub const HEADERS: [&'static str; 4] = ["paused", "since", "by", "why"];

    /// The cells of a table's row.
    #[must_use]
    pub fn row(&self) -> Vec<String> {
        vec![
            self.compensation_fn.clone().unwrap_or_else(|| "every compensation".to_owned()),
            time_cell(self.paused_at.as_ref()),
            self.paused_by.clone(),
            shorten(self.reason.as_deref().unwrap_or_default(), 60),
        ]
    }
}

/// The circuit breaker of a compensation at a host.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the fields are described on the wire")]
pub struct BreakerView {
    pub compensation_fn: String,
    pub host: String,
    pub state: String,
    pub calls: u32,
    pub failures: u32,
    pub opened_at: Option<String>,
}

impl From<&Breaker> for BreakerView {
    fn from(from: &Breaker) -> Self {
        Self {
            compensation_fn: from.compensation_fn.clone(),
            host: from.host.clone(),
            state: from.state.clone(),
            calls: from.calls,
            failures: from.failures,
            opened_at: time(from.opened_at.as_ref()),
        }
    }
}

impl BreakerView {
    /// The columns of a table of breakers.
    pub const HEADERS: [&'static str; 6] =
        ["compensation", "host", "breaker", "calls", "failures", "opened"];

    /// The cells of a table's row.
    #[must_use]
    pub fn row(&self) -> Vec<String> {
        vec![
            self.compensation_fn.clone(),
            self.host.clone(),
            self.state.clone(),
            self.calls.to_string(),
            self.failures.to_string(),
            time_cell(self.opened_at.as_ref()),
        ]
    }
}

impl DeadLetterDetailView {
    /// The whole body of the call that a retry would make.
    #[must_use]
    pub fn next_body(&self) -> Option<&Raw> {
        self.next_call.as_ref().map(|call| &call.body)
    }
}
