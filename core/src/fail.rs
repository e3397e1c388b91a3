//! What a Fail does, and a Commit with `success=false`, which is a Fail in every respect.

use crate::state::{
    DeadLetterReason, EffectEvent, EffectState, FailedEffect, Outcome, SessionState, UndoState,
};
use crate::{Reason, Tier};

/// The session's live rollback, as a call sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiveRollback {
    /// There is none.
    None,
    /// Its scope holds the call.
    Covers,
    /// It is a partial one, and the call lies below it.
    Above,
}

/// What a Fail finds under the session lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailFound {
    /// What the caller says about the effect.
    pub says: FailedEffect,
    /// The effect's state.
    pub effect: EffectState,
    /// The effect's tier.
    pub tier: Tier,
    /// The attempt was granted: an approved effect may have no grant yet.
    pub granted: bool,
    /// The attempt is the newest one.
    pub is_current: bool,
    /// A Commit has already stored a result for it.
    pub has_result: bool,
    /// The attempt's undo entry.
    pub entry: Option<UndoState>,
    /// The reason of the open dead letter on the effect itself.
    pub dead_letter: Option<DeadLetterReason>,
    /// The session's live rollback.
    pub rollback: LiveRollback,
    /// The session's policy `on_tool_failure` is `continue`.
    pub continues: bool,
    /// The session's state.
    pub session: SessionState,
}

/// One thing that a Fail writes, in the order of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailAction {
    /// The effect becomes failed with this outcome and its grant ends.
    Fail(Outcome),
    /// The effect becomes unknown and its grant ends.
    MarkUnknown,
    /// The pending entry is skipped: there is nothing to undo.
    SkipEntry,
    /// The open dead letter is closed by this evidence.
    CloseDeadLetter,
    /// The session fails and its rollback begins, or the live partial one becomes the whole.
    FailSession,
    /// The live rollback is due: it may have waited for this report.
    MakeDue,
    /// An event without a change of the effect's state.
    Event(EffectEvent),
}

/// What a Fail does and what its caller hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailPlan {
    /// What is written, in order. It is written also when the caller hears a reason.
    pub actions: Vec<FailAction>,
    /// `None` is OK.
    pub reply: Option<Reason>,
}

/// Decides what a Fail does.
#[must_use]
pub fn decide(found: &FailFound) -> FailPlan {
    use FailAction as A;
    let event_only = |event| FailPlan { actions: vec![A::Event(event)], reply: None };
    if !found.is_current {
        return event_only(EffectEvent::StaleReport);
    }
    if found.has_result || found.effect == EffectState::Committed {
        return FailPlan {
            actions: vec![A::Event(EffectEvent::ResultConflict)],
            reply: Some(Reason::ResultConflict),
        };
    }
    let mut actions = match found.effect {
        EffectState::Pending | EffectState::Rejected | EffectState::Replayed => {
            return FailPlan { actions: vec![], reply: Some(Reason::NotGranted) };
        }
        EffectState::Approved if !found.granted => {
            return FailPlan { actions: vec![], reply: Some(Reason::NotGranted) };
        }
        EffectState::Executing | EffectState::Approved => match found.says {
            FailedEffect::Unknown => vec![A::MarkUnknown],
            FailedEffect::MaybeApplied => vec![A::Fail(Outcome::MaybeApplied)],
            FailedEffect::NotApplied => not_applied(found),
        },
        EffectState::Unknown => match found.says {
            FailedEffect::NotApplied => not_applied(found),
            // It says no more than what is known already.
            _ => vec![A::Event(EffectEvent::StaleReport)],
        },
        // The first Fail stands; only a Commit, a probe or an operator changes it.
        EffectState::Failed
        | EffectState::Committed
        | EffectState::Compensating
        | EffectState::Compensated
        | EffectState::CompensationFailed => return event_only(EffectEvent::StaleReport),
    };
    match found.rollback {
        LiveRollback::Covers => actions.push(A::MakeDue),
        LiveRollback::Above if !found.continues => actions.push(A::FailSession),
        LiveRollback::None if found.session.is_live() && !found.continues => {
            actions.push(A::FailSession);
        }
        LiveRollback::Above | LiveRollback::None => {}
    }
    FailPlan { actions, reply: None }
}

fn not_applied(found: &FailFound) -> Vec<FailAction> {
    use FailAction as A;
    let mut actions = vec![A::Fail(Outcome::NotApplied)];
    match (found.tier, found.entry) {
        (Tier::Irreversible, _) => {
            if found.dead_letter == Some(DeadLetterReason::OutcomeUnknown) {
                actions.push(A::CloseDeadLetter);
            }
        }
        (_, Some(UndoState::Pending)) => actions.push(A::SkipEntry),
        (_, Some(UndoState::Skipped) | None) => {}
        // The entry is already worked on: the report must not take the undo back.
        (_, Some(UndoState::Running | UndoState::Failed | UndoState::Compensated)) => {
            return vec![A::Event(EffectEvent::StaleReport)];
        }
    }
    actions
}
