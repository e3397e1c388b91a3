//! An approval request's states and moves.

use crate::names::named_enum;

named_enum! {
    /// The documented states of an approval request.
    pub enum ApprovalState {
        /// Nobody has decided yet.
        Pending => "pending",
        /// A human approved it, as asked or with edited arguments.
        Approved => "approved",
        /// A human, or the start of a rollback, rejected it.
        Rejected => "rejected",
        /// Its window ran out.
        TimedOut => "timed_out",
        /// Policy approved it when its window ran out.
        AutoApproved => "auto_approved",
    }
}

impl ApprovalState {
    /// Whether the request was answered with yes.
    #[must_use]
    pub const fn is_approved(self) -> bool {
        matches!(self, Self::Approved | Self::AutoApproved)
    }
}

named_enum! {
    /// What happens to an approval request. The names are `undolog_effect_events.kind`.
    pub enum ApprovalEvent {
        /// The request was made.
        Requested => "approval_requested",
        /// One vote of a quorum was given; more are needed.
        Voted => "approval_voted",
        /// A human approved it as asked.
        Approved => "approval_approved",
        /// A human approved it with edited arguments.
        Modified => "approval_modified",
        /// A human rejected it.
        Rejected => "approval_rejected",
        /// Its window ran out.
        TimedOut => "approval_timed_out",
        /// Policy approved it.
        AutoApproved => "approval_auto_approved",
        /// The start of a rollback rejected it.
        Voided => "approval_voided",
        /// Its one grant was given.
        Spent => "approval_spent",
        /// It was revoked before its grant; the decision stays on record.
        Revoked => "approval_revoked",
        /// It lapsed before its grant; the decision stays on record.
        Lapsed => "approval_lapsed",
    }
}

/// The approval's table. A revocation, a lapse or a rollback's start after the decision reject the
/// effect and leave the decision as it was given, since exactly one decision is ever made.
#[must_use]
pub const fn transition(
    from: Option<ApprovalState>,
    event: ApprovalEvent,
) -> Option<ApprovalState> {
    use ApprovalEvent as E;
    use ApprovalState as S;
    let Some(from) = from else {
        return match event {
            E::Requested => Some(S::Pending),
            _ => None,
        };
    };
    match (event, from) {
        (E::Voted, S::Pending) => Some(S::Pending),
        (E::Approved | E::Modified, S::Pending) => Some(S::Approved),
        (E::Rejected | E::Voided, S::Pending) => Some(S::Rejected),
        (E::TimedOut, S::Pending) => Some(S::TimedOut),
        (E::AutoApproved, S::Pending) => Some(S::AutoApproved),
        (E::Spent | E::Revoked | E::Lapsed | E::Voided, S::Approved | S::AutoApproved) => {
            Some(from)
        }
        _ => None,
    }
}
