//! What a Commit does: evidence, recorded in every session state.

use crate::state::{DeadLetterReason, EffectEvent, EffectState, SessionState, UndoState};
use crate::{Reason, Tier};

/// What is already recorded for the attempt that a Commit names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredResult {
    /// Nothing yet.
    None,
    /// The same success and the same canonical value.
    Same,
    /// Another success or another value.
    Different,
}

/// The rollback whose scope holds a position. A live one holds everything from its first position
/// up; an ended partial one ends at the position that the session had come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// None.
    Outside,
    /// The session's live rollback.
    Live,
    /// A partial rollback that has ended: it is never opened again.
    EndedPartial,
    /// A whole rollback that has ended: new work opens it again.
    EndedWhole,
}

/// What a Commit finds under the session lock. For a stale attempt `entry`, `stored`, `scope` and
/// `operator_said_not_applied` are that attempt's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitFound {
    /// The effect's state.
    pub effect: EffectState,
    /// The effect's tier.
    pub tier: Tier,
    /// The attempt was granted: an approved effect may have no grant yet.
    pub granted: bool,
    /// The attempt is the newest one.
    pub is_current: bool,
    /// What is recorded for this attempt.
    pub stored: StoredResult,
    /// The attempt's undo entry.
    pub entry: Option<UndoState>,
    /// The reason of the open dead letter on this entry, or on the effect itself.
    pub dead_letter: Option<DeadLetterReason>,
    /// The rollback whose scope holds the call.
    pub scope: Scope,
    /// The session has a live rollback, whatever its scope.
    pub rollback_live: bool,
    /// An operator settled that the call was not applied.
    pub operator_said_not_applied: bool,
    /// The registration allows to run the compensation again.
    pub is_repeatable: bool,
    /// The session's state.
    pub session: SessionState,
}

/// One thing that a Commit writes, in the order of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitAction {
    /// The effect becomes committed with this result and its grant ends.
    Commit,
    /// The result is stored for the compensation; the effect's state stays.
    StoreResult,
    /// The result is stored on its own, older attempt.
    StoreOnAttempt,
    /// A new undo entry, with a new id, on top. When the effect is already `compensated` its
    /// state stays while the new entry is worked on.
    NewEntry,
    /// The skipped entry is owed a new one: it is made when the live rollback, whose scope does
    /// not hold this call, has ended or was widened.
    OweEntry,
    /// A rollback of the new entry alone begins; the session comes back afterwards.
    StartLate,
    /// The failed entry goes back to `pending`.
    RequeueEntry,
    /// The open dead letter is closed by this evidence.
    CloseDeadLetter,
    /// The open dead letter shows the result.
    NoteDeadLetter,
    /// A dead letter is opened.
    OpenDeadLetter(DeadLetterReason),
    /// The committed irreversible effect counts as residue of the rollback.
    CountResidue,
    /// The live rollback is due, or the ended whole one opens again.
    MakeDue,
    /// An event without a change of the effect's state.
    Event(EffectEvent),
}

/// What a Commit does and what its caller hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitPlan {
    /// What is written, in order. It is written also when the caller hears a reason.
    pub actions: Vec<CommitAction>,
    /// `None` is OK.
    pub reply: Option<Reason>,
}

/// Decides what a Commit does.
#[must_use]
pub fn decide(found: &CommitFound) -> CommitPlan {
    use CommitAction as A;
    match found.stored {
        StoredResult::Same => return plan(vec![], None),
        StoredResult::Different => {
            let event = A::Event(EffectEvent::ResultConflict);
            return plan(vec![event], Some(Reason::ResultConflict));
        }
        StoredResult::None => {}
    }
    if !found.is_current {
        return stale(found);
    }
    let actions = match found.effect {
        EffectState::Pending | EffectState::Rejected | EffectState::Replayed => {
            return plan(vec![], Some(Reason::NotGranted));
        }
        EffectState::Approved if !found.granted => {
            return plan(vec![], Some(Reason::NotGranted));
        }
        EffectState::Committed => {
            let event = A::Event(EffectEvent::ResultConflict);
            return plan(vec![event], Some(Reason::ResultConflict));
        }
        EffectState::Unknown | EffectState::Failed if found.operator_said_not_applied => {
            return contradicted(found);
        }
        EffectState::Executing
        | EffectState::Approved
        | EffectState::Unknown
        | EffectState::Failed => first_commit(found),
        EffectState::Compensating => vec![A::StoreResult, A::Event(EffectEvent::LateResult)],
        EffectState::Compensated => after_compensated(found),
        EffectState::CompensationFailed => after_failed(found),
    };
    plan(actions, session_reply(found))
}

/// The effect was granted and nobody undid it: it becomes committed, and the entry decides what
/// else has to follow.
fn first_commit(found: &CommitFound) -> Vec<CommitAction> {
    use CommitAction as A;
    let mut actions = vec![A::Commit];
    if found.tier == Tier::Irreversible {
        if found.dead_letter == Some(DeadLetterReason::OutcomeUnknown) {
            actions.push(A::CloseDeadLetter);
        }
        if found.scope != Scope::Outside {
            actions.push(A::CountResidue);
        }
        // It moves nothing; a live rollback may have waited for it.
        if found.scope == Scope::Live {
            actions.push(A::MakeDue);
        }
        return actions;
    }
    match found.entry {
        Some(UndoState::Pending | UndoState::Running) => {}
        // An effect without an entry could not be undone: it gets one, like after a skip.
        Some(UndoState::Skipped) | None => {
            actions.extend(new_work(found));
            return actions;
        }
        Some(UndoState::Failed) if waits_for_result(found.dead_letter) => {
            actions.extend([A::CloseDeadLetter, A::RequeueEntry]);
        }
        // A human settles it: until then there is nothing for the walk to do.
        Some(UndoState::Failed) => {
            actions.push(A::NoteDeadLetter);
            return actions;
        }
        Some(UndoState::Compensated) => return after_compensated(found),
    }
    if matches!(found.scope, Scope::Live | Scope::EndedWhole) {
        actions.push(A::MakeDue);
    }
    actions
}

/// What has to be undone although the call's own entry is settled: always a new entry on top, and
/// never more than that entry.
fn new_work(found: &CommitFound) -> Vec<CommitAction> {
    use CommitAction as A;
    match found.scope {
        // On top of the stack it would lie in the scope of a rollback that nobody asked for.
        Scope::Outside if found.rollback_live => vec![A::OweEntry],
        Scope::Outside => vec![A::NewEntry],
        Scope::Live | Scope::EndedWhole => vec![A::NewEntry, A::MakeDue],
        Scope::EndedPartial if found.rollback_live => vec![A::NewEntry, A::MakeDue],
        Scope::EndedPartial if found.session.is_live() => vec![A::NewEntry, A::StartLate],
        // The session ended meanwhile: a human decides.
        Scope::EndedPartial => vec![A::OpenDeadLetter(DeadLetterReason::LateCommit)],
    }
}

fn after_compensated(found: &CommitFound) -> Vec<CommitAction> {
    use CommitAction as A;
    let mut actions = vec![A::StoreResult, A::Event(EffectEvent::LateResult)];
    if found.is_repeatable && found.scope != Scope::Outside {
        actions.extend(new_work(found));
    } else {
        actions.push(A::OpenDeadLetter(DeadLetterReason::LateCommit));
    }
    actions
}

fn after_failed(found: &CommitFound) -> Vec<CommitAction> {
    use CommitAction as A;
    let mut actions = vec![A::StoreResult, A::Event(EffectEvent::LateResult)];
    match (found.entry, found.dead_letter) {
        (Some(UndoState::Failed), cause) if waits_for_result(cause) => {
            actions.extend([A::CloseDeadLetter, A::RequeueEntry, A::MakeDue]);
        }
        (_, Some(_)) => actions.push(A::NoteDeadLetter),
        // An operator has put the entry back to work or skipped it: the result is there for it.
        (_, None) => {}
    }
    actions
}

fn stale(found: &CommitFound) -> CommitPlan {
    use CommitAction as A;
    if !found.granted {
        return plan(vec![], Some(Reason::NotGranted));
    }
    if found.operator_said_not_applied {
        return contradicted(found);
    }
    let mut actions = vec![A::StoreOnAttempt, A::Event(EffectEvent::StaleReport)];
    match (found.tier, found.entry) {
        (Tier::Irreversible, _) if found.scope != Scope::Outside => actions.push(A::CountResidue),
        (Tier::Compensable, Some(UndoState::Skipped)) => actions.extend(new_work(found)),
        _ => {}
    }
    plan(actions, session_reply(found))
}

fn contradicted(found: &CommitFound) -> CommitPlan {
    use CommitAction as A;
    let mut actions = vec![A::StoreOnAttempt, A::Event(EffectEvent::Contradicted)];
    if found.dead_letter != Some(DeadLetterReason::Contradicted) {
        actions.push(A::OpenDeadLetter(DeadLetterReason::Contradicted));
    }
    plan(actions, Some(Reason::Contradicted))
}

const fn waits_for_result(cause: Option<DeadLetterReason>) -> bool {
    matches!(cause, Some(DeadLetterReason::MissingResult | DeadLetterReason::OutcomeUnknown))
}

/// The caller hears the session's state when its work is being, or was, taken back.
fn session_reply(found: &CommitFound) -> Option<Reason> {
    match found.session {
        SessionState::Active | SessionState::AwaitingApproval | SessionState::Completed => None,
        // A partial rollback of other calls runs, and the session comes back.
        SessionState::Compensating if found.scope != Scope::Live => None,
        ended => Reason::of_session(ended),
    }
}

const fn plan(actions: Vec<CommitAction>, reply: Option<Reason>) -> CommitPlan {
    CommitPlan { actions, reply }
}
