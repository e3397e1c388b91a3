use serde::Serialize;
use undolog_proto::v1::Event;

use super::{Raw, text, time};

/// One line of the append-only log.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the fields are described on the wire")]
pub struct EventView {
    pub seq: u64,
    pub session_id: String,
    pub occurred_at: Option<String>,
    pub subject: String,
    pub subject_id: String,
    pub kind: String,
    pub from_state: Option<String>,
    pub to_state: Option<String>,
    pub attempt: u32,
    pub actor: String,
    pub detail: Raw,
    pub cursor: String,
}

impl From<&Event> for EventView {
    fn from(event: &Event) -> Self {
        Self {
            seq: event.seq,
            session_id: event.session_id.clone(),
            occurred_at: time(event.occurred_at.as_ref()),
            subject: event.subject.clone(),
            subject_id: event.subject_id.clone(),
            kind: event.kind.clone(),
            from_state: text(&event.from_state),
            to_state: text(&event.to_state),
            attempt: event.attempt,
            actor: event.actor.clone(),
            detail: Raw::new(&event.detail),
            cursor: event.cursor.clone(),
        }
    }
}

impl EventView {
    /// The columns of a table of events.
    pub const HEADERS: [&'static str; 7] =
        ["seq", "time", "what", "id", "event", "states", "actor"];

    /// The cells of a table's row.
    #[must_use]
    pub fn row(&self) -> Vec<String> {
        vec![
            self.seq.to_string(),
            self.clock(),
            self.subject.clone(),
            self.subject_id.clone(),
            self.kind.clone(),
            self.states(),
            self.actor.clone(),
        ]
    }

    /// `from → to`, or the new state alone.
    #[must_use]
    pub fn states(&self) -> String {
        match (&self.from_state, &self.to_state) {
            (Some(from), Some(to)) if from != to => format!("{from} → {to}"),
            (_, Some(to)) => to.clone(),
            (_, None) => String::new(),
        }
    }

    /// The time of day, to the millisecond.
    #[must_use]
    pub fn clock(&self) -> String {
        let time = self.occurred_at.as_deref().unwrap_or_default();
        time.get(11..23).or_else(|| time.get(11..19)).unwrap_or(time).to_owned()
    }
}
