//! What must be true at the end.

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    commands::demo_service::{UndoCall, World},
    views::{EventView, SessionDetailView, UndoEntryView},
};

/// All that was seen.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) before: World,
    pub(super) after: World,
    pub(super) undo_calls: Vec<UndoCall>,
    pub(super) session: SessionDetailView,
    pub(super) events: Vec<EventView>,
}

/// One thing that must be true.
#[derive(Debug, Serialize)]
pub(super) struct Check {
    pub(super) what: &'static str,
    pub(super) ok: bool,
}

impl Outcome {
    /// Whether everything is as it must be.
    pub(super) fn is_good(&self) -> bool {
        self.checks().iter().all(|check| check.ok)
    }

    /// Everything that must be true.
    pub(super) fn checks(&self) -> Vec<Check> {
        let check = |what, ok| Check { what, ok };
        vec![
            check("the service's state is what it was before the run", self.before == self.after),
            check("the session is compensated", self.session.session.state == "compensated"),
            check("three calls were undone", self.undone().len() == 3),
            check("each was applied exactly once, by its undo_id", self.is_applied_once()),
            check("they were undone last call first", self.is_lifo()),
            check("their arguments came from the forward calls' results", self.is_from_results()),
        ]
    }

    /// What a script gets.
    pub(super) fn report(&self) -> Value {
        json!({
            "ok": self.is_good(),
            "checks": self.checks(),
            "session": self.session,
            "undo_calls": self.undo_calls,
            "state_before": self.before,
            "state_after": self.after,
            "events": self.events,
        })
    }

    /// The undone entries, highest position first.
    fn undone(&self) -> Vec<&UndoEntryView> {
        let mut entries: Vec<&UndoEntryView> =
            self.session.undo_stack.iter().filter(|entry| entry.state == "compensated").collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.position));
        entries
    }

    fn applied(&self) -> Vec<&UndoCall> {
        self.undo_calls.iter().filter(|call| call.applied).collect()
    }

    fn is_applied_once(&self) -> bool {
        let undone = self.undone();
        let count = |id: &str| self.applied().iter().filter(|call| call.key == id).count();
        self.applied().len() == undone.len()
            && undone.iter().all(|entry| count(&entry.undo_id) == 1)
    }

    fn is_lifo(&self) -> bool {
        let order = self.undone();
        let order: Vec<&str> = order.iter().map(|entry| entry.undo_id.as_str()).collect();
        let seen = self.applied();
        let seen: Vec<&str> = seen.iter().map(|call| call.key.as_str()).collect();
        !order.is_empty() && order == seen
    }

    /// The ids in the undoing calls' paths were made by the service during the run.
    fn is_from_results(&self) -> bool {
        let results: Vec<String> = self
            .session
            .effects
            .iter()
            .filter_map(|effect| serde_json::to_value(&effect.result).ok())
            .filter_map(|result| result.as_object()?.values().next()?.as_str().map(str::to_owned))
            .collect();
        let applied = self.applied();
        !applied.is_empty()
            && applied.iter().all(|call| results.iter().any(|id| call.request.contains(id)))
    }
}
