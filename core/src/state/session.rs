//! The session's states and moves.

use crate::names::named_enum;

named_enum! {
    /// The documented states of a session (`undolog_session_state`).
    pub enum SessionState {
        /// Tool calls flow.
        Active => "active",
        /// At least one approval is pending.
        AwaitingApproval => "awaiting_approval",
        /// Finished without errors.
        Completed => "completed",
        /// Failed; a rollback may follow.
        Failed => "failed",
        /// The undo walk runs.
        Compensating => "compensating",
        /// Everything that could be undone is undone.
        Compensated => "compensated",
        /// A human has to decide how it goes on.
        Halted => "halted",
    }
}

impl SessionState {
    /// Whether the session may take new calls (awaiting ones with the limits of its table).
    #[must_use]
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Active | Self::AwaitingApproval)
    }
}

named_enum! {
    /// What happens to a session. The names are `undolog_effect_events.kind`.
    pub enum SessionEvent {
        /// The session was begun, by Begin or implicitly by its first Intercept.
        Begun => "session_begun",
        /// An approval became pending.
        ApprovalAsked => "session_approval_asked",
        /// No approval is pending any more.
        ApprovalsCleared => "session_approvals_cleared",
        /// The session ended well.
        Completed => "session_completed",
        /// The session failed: Fail, its lease, or a policy.
        Failed => "session_failed",
        /// A rejection or an approval timeout halted it (documented).
        RejectionHalted => "session_rejection_halted",
        /// A whole rollback was asked for; the walk's start follows in the same transaction.
        RollbackRequested => "session_rollback_requested",
        /// The whole rollback began.
        RollbackStarted => "session_rollback_started",
        /// A partial rollback began: the session comes back afterwards.
        PartialRollbackStarted => "session_partial_rollback_started",
        /// The live rollback was widened to a larger scope.
        RollbackWidened => "session_rollback_widened",
        /// A partial rollback is done, no approval is pending.
        PartialRollbackDone => "session_partial_rollback_done",
        /// A partial rollback is done, an older approval is still pending.
        PartialRollbackDoneAwaiting => "session_partial_rollback_done_awaiting",
        /// A partial rollback is done in a session that had completed.
        PartialRollbackDoneCompleted => "session_partial_rollback_done_completed",
        /// A partial rollback is done in a session that had failed without a rollback.
        PartialRollbackDoneFailed => "session_partial_rollback_done_failed",
        /// A partial rollback is done, and a rejection or a timeout had halted the session.
        PartialRollbackDoneHalted => "session_partial_rollback_done_halted",
        /// The whole rollback is done, nothing is open.
        Compensated => "session_compensated",
        /// The walk stopped or ended with something that only a human can settle.
        WalkHalted => "session_walk_halted",
        /// A new entry, a late success or an operator made the walk due again.
        Reopened => "session_reopened",
        /// A dead letter came after the walk had ended well.
        DeadLettered => "session_dead_lettered",
        /// An operator settled a halted session: it stays halted and leaves the lists.
        Settled => "session_settled",
        /// A savepoint was named.
        SavepointTaken => "session_savepoint_taken",
        /// The undo window is over.
        Sealed => "session_sealed",
    }
}

/// The session's table. `from` is `None` for a session that does not exist yet.
#[must_use]
pub const fn transition(from: Option<SessionState>, event: SessionEvent) -> Option<SessionState> {
    use SessionEvent as E;
    use SessionState as S;
    let Some(from) = from else {
        return match event {
            E::Begun => Some(S::Active),
            _ => None,
        };
    };
    match (event, from) {
        (E::ApprovalAsked, S::Active | S::AwaitingApproval) => Some(S::AwaitingApproval),
        (E::ApprovalsCleared, S::AwaitingApproval) => Some(S::Active),
        (E::Completed, S::Active) => Some(S::Completed),
        (E::Failed, S::Active | S::AwaitingApproval) => Some(S::Failed),
        (E::RejectionHalted, S::Active | S::AwaitingApproval) => Some(S::Halted),
        (E::RollbackRequested, S::Active | S::AwaitingApproval | S::Completed | S::Halted) => {
            Some(S::Failed)
        }
        (E::RollbackStarted, S::Failed) => Some(S::Compensating),
        // An operator can have late work undone in a session that ended meanwhile.
        (
            E::PartialRollbackStarted,
            S::Active | S::AwaitingApproval | S::Completed | S::Failed | S::Halted,
        ) => Some(S::Compensating),
        (E::RollbackWidened, S::Compensating) => Some(S::Compensating),
        (E::PartialRollbackDone, S::Compensating) => Some(S::Active),
        (E::PartialRollbackDoneAwaiting, S::Compensating) => Some(S::AwaitingApproval),
        (E::PartialRollbackDoneCompleted, S::Compensating) => Some(S::Completed),
        (E::PartialRollbackDoneFailed, S::Compensating) => Some(S::Failed),
        (E::PartialRollbackDoneHalted, S::Compensating) => Some(S::Halted),
        (E::Compensated, S::Compensating) => Some(S::Compensated),
        (E::WalkHalted, S::Compensating) => Some(S::Halted),
        (E::Reopened, S::Halted | S::Compensated) => Some(S::Compensating),
        (E::DeadLettered, S::Compensated) => Some(S::Halted),
        (E::Settled, S::Halted) => Some(S::Halted),
        (E::SavepointTaken, S::Active | S::AwaitingApproval) => Some(from),
        (E::Sealed, S::Completed | S::Compensated | S::Failed | S::Halted) => Some(from),
        _ => None,
    }
}
