//! A dead letter's reasons, states and moves.

use crate::names::named_enum;

named_enum! {
    /// Whether a human still has to settle it.
    pub enum DeadLetterState {
        /// Open.
        Open => "open",
        /// Settled, by a human or by evidence.
        Closed => "closed",
    }
}

named_enum! {
    /// Why only a human can settle something.
    pub enum DeadLetterReason {
        /// Every retry of the compensation failed.
        Exhausted => "EXHAUSTED",
        /// The endpoint refused the compensation for good.
        Permanent => "PERMANENT",
        /// The endpoint asked to come back later for a whole day.
        DeferredTooLong => "DEFERRED_TOO_LONG",
        /// Three processes in a row that made its call and nothing else ended in it.
        Poison => "POISON",
        /// The compensation needs a result that does not exist.
        MissingResult => "MISSING_RESULT",
        /// Nobody knows whether the effect happened.
        OutcomeUnknown => "OUTCOME_UNKNOWN",
        /// The call could not be rendered, or its arguments do not fit their schema.
        Unrenderable => "UNRENDERABLE",
        /// The compensation is not registered (any more), or is inactive.
        CompensationMissing => "COMPENSATION_MISSING",
        /// The compensation's call has changed since it was sent, and what was sent may have been
        /// carried out.
        CallChanged => "CALL_CHANGED",
        /// The call committed after it had been compensated.
        LateCommit => "LATE_COMMIT",
        /// The call committed after an operator had said that it was not applied.
        Contradicted => "CONTRADICTED",
    }
}

named_enum! {
    /// What happens to a dead letter. The names are `undolog_effect_events.kind`.
    pub enum DeadLetterEvent {
        /// It was made.
        Opened => "dead_letter_opened",
        /// A late result was added to what it shows.
        Noted => "dead_letter_noted",
        /// It was settled.
        Closed => "dead_letter_closed",
    }
}

/// The dead letter's table. `from` is `None` for one that does not exist yet.
#[must_use]
pub const fn transition(
    from: Option<DeadLetterState>,
    event: DeadLetterEvent,
) -> Option<DeadLetterState> {
    use DeadLetterEvent as E;
    use DeadLetterState as S;
    match (event, from) {
        (E::Opened, None) => Some(S::Open),
        (E::Noted, Some(from)) => Some(from),
        (E::Closed, Some(S::Open)) => Some(S::Closed),
        _ => None,
    }
}
