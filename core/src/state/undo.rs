//! An undo entry's states and moves.

use crate::names::named_enum;

named_enum! {
    /// The documented states of an undo entry.
    pub enum UndoState {
        /// Waits for a rollback, or for its turn in one.
        Pending => "pending",
        /// Begun and not settled: also between two calls of it.
        Running => "running",
        /// Its compensation succeeded.
        Compensated => "compensated",
        /// Given up; a dead letter says why.
        Failed => "failed",
        /// Nothing to undo, or a human said so; `SkipReason` says why.
        Skipped => "skipped",
    }
}

impl UndoState {
    /// Whether the entry still has to be worked on.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Running)
    }
}

named_enum! {
    /// Why an entry was skipped.
    pub enum SkipReason {
        /// The call reported that nothing happened.
        NotApplied => "not_applied",
        /// The call reported a failure and its compensation needs the result that is missing.
        FailedWithoutResult => "failed_without_result",
        /// The registration says to skip when the result is missing.
        MissingResult => "missing_result",
        /// An operator skipped it.
        Operator => "operator",
        /// An operator replaced it by a new entry on top.
        Superseded => "superseded",
        /// A new attempt of the call has an entry of its own.
        NewAttempt => "new_attempt",
    }
}

named_enum! {
    /// What happens to an undo entry. The names are `undolog_effect_events.kind`.
    pub enum UndoEvent {
        /// The entry was registered.
        Registered => "undo_registered",
        /// The walk took it.
        Started => "undo_started",
        /// A call of it failed and will be retried.
        AttemptFailed => "undo_attempt_failed",
        /// The endpoint asked to come back later.
        Deferred => "undo_deferred",
        /// A call ended with no outcome: its worker is gone.
        Interrupted => "undo_interrupted",
        /// A worker that stops handed it back.
        HandedBack => "undo_handed_back",
        /// Its compensation succeeded.
        Compensated => "undo_compensated",
        /// Given up: exhausted, permanent, or not renderable.
        Failed => "undo_failed",
        /// Skipped with a reason.
        Skipped => "undo_skipped",
        /// An operator or a late result put it back to work.
        Retried => "undo_retried",
        /// A call that had been given up turned out to have succeeded.
        LateSuccess => "undo_late_success",
        /// An operator settled it by hand.
        Resolved => "undo_resolved",
    }
}

/// The undo entry's table. `from` is `None` for an entry that does not exist yet.
#[must_use]
pub const fn transition(from: Option<UndoState>, event: UndoEvent) -> Option<UndoState> {
    use UndoEvent as E;
    use UndoState as S;
    let Some(from) = from else {
        return match event {
            E::Registered => Some(S::Pending),
            _ => None,
        };
    };
    match (event, from) {
        (E::Started, S::Pending) => Some(S::Running),
        (E::AttemptFailed | E::Deferred | E::Interrupted | E::HandedBack, S::Running) => {
            Some(S::Running)
        }
        (E::Compensated, S::Running) => Some(S::Compensated),
        // A template that cannot be rendered fails before any call is made.
        (E::Failed, S::Pending | S::Running) => Some(S::Failed),
        (E::Skipped, S::Pending | S::Failed) => Some(S::Skipped),
        (E::Retried, S::Failed) => Some(S::Pending),
        (E::LateSuccess, S::Pending | S::Running | S::Failed | S::Skipped) => Some(S::Compensated),
        (E::Resolved, S::Pending | S::Failed | S::Skipped) => Some(S::Compensated),
        _ => None,
    }
}
