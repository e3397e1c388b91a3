//! What Intercept answers: the table of the design, row by row and column by column.

use crate::state::SessionState;
use crate::{Reason, Tier};

/// Why an effect will never run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejectedCause {
    /// A human rejected it.
    Rejected,
    /// Its approval timed out.
    TimedOut,
    /// Its approval lapsed unused.
    Lapsed,
    /// Its approval was revoked.
    Revoked,
    /// The start of a rollback took its approval away.
    Voided,
}

/// What the journal holds for a call's signature, after an expired lease became `unknown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// A committed effect with its result.
    Committed,
    /// A grant whose lease still runs.
    LiveGrant {
        /// The request carries the same non-empty `grant_token` as the grant.
        same_token: bool,
    },
    /// Approved, and nobody was granted it yet.
    ApprovedUngranted,
    /// Its approval is pending.
    Pending,
    /// Failed, and nothing happened.
    FailedNotApplied {
        /// Another call has taken the step since.
        step_taken: bool,
    },
    /// Unknown, or failed with a possible effect.
    UnknownOrMaybe {
        /// The tool is registered as idempotent.
        idempotent: bool,
    },
    /// It will never run.
    Rejected {
        /// Why.
        cause: RejectedCause,
    },
    /// It is being undone.
    Compensating,
    /// It was undone.
    Compensated,
    /// Undoing it failed.
    CompensationFailed,
    /// An operator said that it was not applied and a report says that it was; nobody has settled
    /// that yet.
    Contradicted,
    /// Nothing for this signature, and another call holds the step.
    StepHeld,
    /// Nothing.
    Nothing,
}

/// What else the decision depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// The tool's effective tier now; for a known effect the higher of it and the row's.
    pub tier: Tier,
    /// The session's undo window is over.
    pub sealed: bool,
    /// The policy lets several calls share a step.
    pub shared_steps: bool,
    /// The session is being rolled back for a late report only, and its agent goes on afterwards.
    pub late_rollback: bool,
}

/// What Intercept does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Answer Execute with an empty effect id; no row.
    SafeExecute,
    /// Serve the stored result.
    Replay,
    /// The same Execute again: its first answer was lost.
    SameExecute,
    /// Spend the approval and answer Execute, once.
    GrantApproved,
    /// Answer AwaitingApproval with the same approval id.
    AwaitingApproval,
    /// Record a new effect: granted when compensable, asked for when irreversible.
    NewEffect,
    /// Grant or ask for another attempt of the known effect.
    NewAttempt {
        /// The attempt keeps the earlier undo entry, whose key is the effect's.
        same_entry: bool,
        /// The attempt needs an approval of its own.
        new_approval: bool,
    },
    /// Refuse.
    Refuse(Reason),
}

/// Decides what Intercept answers.
#[must_use]
pub const fn decide(found: Found, session: SessionState, context: Context) -> Decision {
    use Decision::Refuse;
    if matches!(found, Found::Nothing | Found::StepHeld) && matches!(context.tier, Tier::Safe) {
        return Decision::SafeExecute;
    }
    if context.sealed {
        return Refuse(Reason::SessionExpired);
    }
    let found = match found {
        Found::StepHeld if context.shared_steps => Found::Nothing,
        Found::FailedNotApplied { .. } if context.shared_steps => {
            Found::FailedNotApplied { step_taken: false }
        }
        other => other,
    };
    match found {
        Found::Rejected { cause } => return Refuse(rejected(cause)),
        Found::Compensating => return Refuse(Reason::UndoRunning),
        Found::Compensated => return Refuse(Reason::AlreadyUndone),
        Found::CompensationFailed => return Refuse(Reason::UndoFailed),
        Found::Contradicted => return Refuse(Reason::Contradicted),
        _ => {}
    }
    match session {
        SessionState::Active => in_live_session(found, false, context.tier),
        SessionState::AwaitingApproval => in_live_session(found, true, context.tier),
        SessionState::Completed => match found {
            Found::Committed => Decision::Replay,
            Found::UnknownOrMaybe { .. } => Refuse(Reason::OutcomeUnknown),
            _ => Refuse(Reason::SessionCompleted),
        },
        SessionState::Failed => Refuse(Reason::SessionFailed),
        SessionState::Compensating if context.late_rollback => Refuse(Reason::UndoRunning),
        SessionState::Compensating => Refuse(Reason::SessionCompensating),
        SessionState::Compensated => Refuse(Reason::SessionCompensated),
        SessionState::Halted => Refuse(Reason::SessionHalted),
    }
}

const fn in_live_session(found: Found, awaiting: bool, tier: Tier) -> Decision {
    let new_approval = tier.requires_approval();
    match found {
        Found::Committed => Decision::Replay,
        Found::LiveGrant { same_token: true } => Decision::SameExecute,
        Found::LiveGrant { same_token: false } => Decision::Refuse(Reason::InProgress),
        Found::ApprovedUngranted => Decision::GrantApproved,
        Found::Pending => Decision::AwaitingApproval,
        Found::FailedNotApplied { step_taken } => {
            if awaiting {
                Decision::Refuse(Reason::SessionAwaitingApproval)
            } else if step_taken {
                Decision::Refuse(Reason::StepConflict)
            } else {
                Decision::NewAttempt { same_entry: false, new_approval }
            }
        }
        Found::UnknownOrMaybe { idempotent: false } => Decision::Refuse(Reason::OutcomeUnknown),
        Found::UnknownOrMaybe { idempotent: true } => {
            Decision::NewAttempt { same_entry: true, new_approval }
        }
        Found::StepHeld => Decision::Refuse(Reason::StepConflict),
        Found::Nothing => {
            if awaiting && !new_approval {
                Decision::Refuse(Reason::SessionAwaitingApproval)
            } else {
                Decision::NewEffect
            }
        }
        Found::Rejected { cause } => Decision::Refuse(rejected(cause)),
        Found::Compensating => Decision::Refuse(Reason::UndoRunning),
        Found::Compensated => Decision::Refuse(Reason::AlreadyUndone),
        Found::CompensationFailed => Decision::Refuse(Reason::UndoFailed),
        Found::Contradicted => Decision::Refuse(Reason::Contradicted),
    }
}

/// The reason that a rejected call is answered with, in every session state.
#[must_use]
pub const fn rejected(cause: RejectedCause) -> Reason {
    match cause {
        RejectedCause::Rejected => Reason::ApprovalRejected,
        RejectedCause::TimedOut => Reason::ApprovalTimedOut,
        RejectedCause::Lapsed => Reason::ApprovalLapsed,
        RejectedCause::Revoked => Reason::ApprovalRevoked,
        RejectedCause::Voided => Reason::ApprovalVoided,
    }
}
