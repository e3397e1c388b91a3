//! The wire's messages as JSON for scripts and as cells for tables.
//!
//! Arguments, results and templates are passed through byte by byte: a number that a parser would
//! round reaches the reader as it was recorded.

mod approval;
mod event;
mod operator;
mod registry;
mod rollback;
mod session;

use serde::Serialize;
use serde_json::value::RawValue;

pub use approval::{ApprovalDetailView, ApprovalView, DecisionView, UpdateView};
pub use event::EventView;
pub use operator::{
    BreakerView, ChangeView, ChangesView, DeadLetterDetailView, DeadLetterItemView,
    NotificationView, PauseView, QueueView, UndoAttemptView, UnknownView,
};
pub use registry::{CompensationView, ToolView};
pub use rollback::{PlanView, PlannedUndoView, ResidueView};
pub use session::{
    DeadLetterView, EffectView, RollbackView, SessionDetailView, SessionView, UndoEntryView,
};

/// JSON as it was recorded; `null` for none, a string for bytes that are no JSON.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Raw(Box<RawValue>);

impl Raw {
    /// Takes bytes of the wire.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        if text.trim().is_empty() {
            return Self(RawValue::NULL.to_owned());
        }
        let parsed = RawValue::from_string(text.clone().into_owned());
        Self(parsed.unwrap_or_else(|_| {
            let quoted = serde_json::Value::String(text.into_owned()).to_string();
            RawValue::from_string(quoted).unwrap_or_else(|_| RawValue::NULL.to_owned())
        }))
    }

    /// The text, cut for a table's cell.
    #[must_use]
    pub fn cell(&self) -> String {
        shorten(&self.whole(), 60)
    }

    /// The whole text; empty for none.
    #[must_use]
    pub fn whole(&self) -> String {
        match self.0.get() {
            "null" => String::new(),
            text => shorten(text, usize::MAX),
        }
    }
}

/// What a field says that is empty because it is too large.
const LEFT_OUT: &str = "(left out: too large)";

/// A value for a table's cell; one that was left out says so.
pub(crate) fn cell(value: &Raw, field: &str, left_out: &[String]) -> String {
    if left_out.iter().any(|name| name == field) { LEFT_OUT.to_owned() } else { value.cell() }
}

/// A whole value for a record; one that was left out says so.
pub(crate) fn whole(value: &Raw, field: &str, left_out: &[String]) -> String {
    if left_out.iter().any(|name| name == field) { LEFT_OUT.to_owned() } else { value.whole() }
}

/// How what was left out of a row is read.
pub(crate) fn how_to_read(of: &str, id: &str, left_out: &[String]) -> Vec<String> {
    left_out.iter().map(|field| format!("undolog sessions value {of} {id} {field}")).collect()
}

/// A time of the wire, as RFC 3339.
pub(crate) fn time<T: ToString>(timestamp: Option<&T>) -> Option<String> {
    timestamp.map(ToString::to_string)
}

/// A time for a table's cell: to the second.
pub(crate) fn time_cell(time: Option<&String>) -> String {
    let Some(time) = time else { return String::new() };
    time.chars().take(19).collect::<String>().replace('T', " ")
}

/// An optional text of the wire, where empty means none.
pub(crate) fn text(value: &str) -> Option<String> {
    (!value.is_empty()).then(|| value.to_owned())
}

/// At most `limit` characters, with a mark where something was left out.
#[must_use]
pub fn shorten(text: &str, limit: usize) -> String {
    let flat: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if flat.chars().count() <= limit {
        return flat;
    }
    let mut cut: String = flat.chars().take(limit.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_pass_unrounded_and_other_bytes_become_text() {
        let json = |bytes: &[u8]| serde_json::to_string(&Raw::new(bytes)).expect("serialises");
        assert_eq!(json(b"{\"n\":12345678901234567890123}"), "{\"n\":12345678901234567890123}");
        assert_eq!(json(b""), "null");
        assert_eq!(json(b"oops"), "\"oops\"");
    }

    #[test]
    fn a_long_cell_is_cut_and_never_breaks_the_line() {
        assert_eq!(shorten("a\nb", 10), "a b");
        assert_eq!(shorten("abcdef", 4), "abc…");
    }
}
