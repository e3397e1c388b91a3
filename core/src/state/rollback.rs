//! A rollback's states and moves.

use crate::names::named_enum;

named_enum! {
    /// The states of one request to walk a session's undo stack.
    pub enum RollbackState {
        /// Waits until no live grant is left in its scope.
        Draining => "draining",
        /// Undoes the entries, the highest position first.
        Walking => "walking",
        /// Stopped or ended with something that only a human can settle.
        Halted => "halted",
        /// Ended with nothing open.
        Compensated => "compensated",
        /// Replaced by a later rollback.
        Superseded => "superseded",
    }
}

impl RollbackState {
    /// Whether this is the session's live rollback: a session has at most one.
    #[must_use]
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Draining | Self::Walking | Self::Halted)
    }
}

named_enum! {
    /// What happens to a rollback. The names are `undolog_effect_events.kind`.
    pub enum RollbackEvent {
        /// It began, with the drain.
        Started => "rollback_started",
        /// No live grant is left in scope.
        Drained => "rollback_drained",
        /// A wider request was added: the drain begins again for the added part.
        Widened => "rollback_widened",
        /// It stopped, or ended, with something open.
        Halted => "rollback_halted",
        /// It ended with nothing open.
        Compensated => "rollback_compensated",
        /// A new entry, a late success or an operator made it due again: it drains first, like a
        /// new one. An ended partial rollback is never reopened.
        Reopened => "rollback_reopened",
        /// A dead letter came after it had ended well.
        DeadLettered => "rollback_dead_lettered",
        /// A later rollback took its place.
        Superseded => "rollback_superseded",
    }
}

/// The rollback's table. `from` is `None` for a rollback that does not exist yet.
#[must_use]
pub const fn transition(
    from: Option<RollbackState>,
    event: RollbackEvent,
) -> Option<RollbackState> {
    use RollbackEvent as E;
    use RollbackState as S;
    let Some(from) = from else {
        return match event {
            E::Started => Some(S::Draining),
            _ => None,
        };
    };
    match (event, from) {
        (E::Drained, S::Draining) => Some(S::Walking),
        (E::Widened, S::Draining | S::Walking | S::Halted) => Some(S::Draining),
        (E::Halted, S::Draining | S::Walking) => Some(S::Halted),
        // An empty stack is done without a walk.
        (E::Compensated, S::Draining | S::Walking) => Some(S::Compensated),
        (E::Reopened, S::Halted | S::Compensated) => Some(S::Draining),
        (E::DeadLettered, S::Compensated) => Some(S::Halted),
        (E::Superseded, S::Draining | S::Walking | S::Halted) => Some(S::Superseded),
        _ => None,
    }
}
