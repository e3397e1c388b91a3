//! The append-only log: every transition of a step, written with the step's session.

use serde_json::Value;
use undolog_core::state::Subject;
use uuid::Uuid;

/// One event before its place in the sequence is known.
#[derive(Debug, Clone)]
pub struct Event {
    /// What it is about.
    pub subject: Subject,
    /// The subject's id.
    pub subject_id: Uuid,
    /// What happened: a name of the core's event enums.
    pub kind: &'static str,
    /// The state before; `None` for something new.
    pub from: Option<&'static str>,
    /// The state after.
    pub to: &'static str,
    /// The effect's attempt, where one is meant.
    pub attempt: Option<i32>,
    /// Who did it.
    pub actor: String,
    /// More, for people: never arguments, results or secrets.
    pub detail: Value,
}
