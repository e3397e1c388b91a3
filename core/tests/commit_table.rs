//! Every row of the late-commit table, and the rules around it.

use undolog_core::commit::{
    CommitAction as A, CommitFound, CommitPlan, Scope, StoredResult, decide,
};
use undolog_core::state::{DeadLetterReason, EffectEvent, EffectState, SessionState, UndoState};
use undolog_core::{Reason, Tier};

/// A granted compensable call in an active session, about to commit.
const FOUND: CommitFound = CommitFound {
    effect: EffectState::Executing,
    tier: Tier::Compensable,
    granted: true,
    is_current: true,
    stored: StoredResult::None,
    entry: Some(UndoState::Pending),
    dead_letter: None,
    scope: Scope::Outside,
    rollback_live: false,
    operator_said_not_applied: false,
    is_repeatable: false,
    session: SessionState::Active,
};

/// The same after its lease ran out and the session's rollback began.
const LATE: CommitFound = CommitFound {
    effect: EffectState::Unknown,
    scope: Scope::Live,
    rollback_live: true,
    session: SessionState::Compensating,
    ..FOUND
};

const LATE_RESULT: A = A::Event(EffectEvent::LateResult);

#[track_caller]
fn check(found: CommitFound, actions: &[A], reply: Option<Reason>) {
    assert_eq!(decide(&found), CommitPlan { actions: actions.to_vec(), reply }, "{found:?}");
}

fn of(session: SessionState) -> Option<Reason> {
    Reason::of_session(session)
}

#[test]
fn in_time() {
    check(FOUND, &[A::Commit], None);
    let awaiting = CommitFound { session: SessionState::AwaitingApproval, ..FOUND };
    check(awaiting, &[A::Commit], None);
    let irreversible = CommitFound {
        effect: EffectState::Approved,
        tier: Tier::Irreversible,
        entry: None,
        ..FOUND
    };
    check(irreversible, &[A::Commit], None);
    for effect in [EffectState::Unknown, EffectState::Failed] {
        check(CommitFound { effect, ..FOUND }, &[A::Commit], None);
    }
}

#[test]
fn evidence_is_recorded_in_every_session_state() {
    for session in SessionState::ALL.iter().copied() {
        let plan = decide(&CommitFound { session, ..FOUND });
        assert_eq!(plan.actions, [A::Commit], "{session}");
        let hears = match session {
            SessionState::Active | SessionState::AwaitingApproval | SessionState::Completed => None,
            // A rollback of other calls runs.
            SessionState::Compensating => None,
            ended => of(ended),
        };
        assert_eq!(plan.reply, hears, "{session}");
    }
}

#[test]
fn the_same_outcome_again_is_ok_and_another_is_a_conflict() {
    use EffectState::{Committed, Compensated, Compensating, CompensationFailed};
    for effect in [Committed, Compensating, Compensated, CompensationFailed] {
        for is_current in [true, false] {
            let same = CommitFound { effect, is_current, stored: StoredResult::Same, ..LATE };
            check(same, &[], None);
            let other = CommitFound { stored: StoredResult::Different, ..same };
            let conflict = A::Event(EffectEvent::ResultConflict);
            check(other, &[conflict], Some(Reason::ResultConflict));
        }
    }
}

#[test]
fn what_was_never_granted_has_nothing_to_commit() {
    for effect in [EffectState::Pending, EffectState::Rejected, EffectState::Approved] {
        let tier = Tier::Irreversible;
        let found = CommitFound { effect, tier, granted: false, entry: None, ..FOUND };
        check(found, &[], Some(Reason::NotGranted));
        check(CommitFound { is_current: false, ..found }, &[], Some(Reason::NotGranted));
    }
}

#[test]
fn late_pending_entry_waits_its_turn() {
    let hears = of(SessionState::Compensating);
    for effect in [EffectState::Executing, EffectState::Unknown, EffectState::Failed] {
        check(CommitFound { effect, ..LATE }, &[A::Commit, A::MakeDue], hears);
    }
}

#[test]
fn late_running_entry_gets_the_result() {
    let running =
        CommitFound { effect: EffectState::Compensating, entry: Some(UndoState::Running), ..LATE };
    check(running, &[A::StoreResult, LATE_RESULT], of(SessionState::Compensating));
}

#[test]
fn late_skipped_entry_gets_a_new_one_and_the_session_reopens() {
    let skipped = CommitFound {
        effect: EffectState::Failed,
        entry: Some(UndoState::Skipped),
        scope: Scope::EndedWhole,
        rollback_live: false,
        session: SessionState::Compensated,
        ..LATE
    };
    let actions = [A::Commit, A::NewEntry, A::MakeDue];
    check(skipped, &actions, of(SessionState::Compensated));
    let live = CommitFound {
        scope: Scope::Outside,
        rollback_live: false,
        session: SessionState::Active,
        ..skipped
    };
    check(live, &[A::Commit, A::NewEntry], None);
}

#[test]
fn late_failed_entry_that_waited_for_the_result_goes_on() {
    for cause in [DeadLetterReason::MissingResult, DeadLetterReason::OutcomeUnknown] {
        let failed = CommitFound {
            entry: Some(UndoState::Failed),
            dead_letter: Some(cause),
            session: SessionState::Halted,
            ..LATE
        };
        let actions = [A::Commit, A::CloseDeadLetter, A::RequeueEntry, A::MakeDue];
        check(failed, &actions, of(SessionState::Halted));
        let tried = CommitFound { effect: EffectState::CompensationFailed, ..failed };
        let actions =
            [A::StoreResult, LATE_RESULT, A::CloseDeadLetter, A::RequeueEntry, A::MakeDue];
        check(tried, &actions, of(SessionState::Halted));
    }
}

#[test]
fn late_failed_entry_of_another_cause_shows_the_result() {
    for cause in DeadLetterReason::ALL.iter().copied() {
        if matches!(cause, DeadLetterReason::MissingResult | DeadLetterReason::OutcomeUnknown) {
            continue;
        }
        let failed = CommitFound {
            effect: EffectState::CompensationFailed,
            entry: Some(UndoState::Failed),
            dead_letter: Some(cause),
            session: SessionState::Halted,
            ..LATE
        };
        let actions = [A::StoreResult, LATE_RESULT, A::NoteDeadLetter];
        check(failed, &actions, of(SessionState::Halted));
        let untried = CommitFound { effect: EffectState::Unknown, ..failed };
        let actions = [A::Commit, A::NoteDeadLetter];
        check(untried, &actions, of(SessionState::Halted));
    }
}

#[test]
fn late_result_of_an_entry_that_an_operator_put_back_is_stored_for_it() {
    let requeued = CommitFound {
        effect: EffectState::CompensationFailed,
        entry: Some(UndoState::Pending),
        ..LATE
    };
    check(requeued, &[A::StoreResult, LATE_RESULT], of(SessionState::Compensating));
}

#[test]
fn late_compensated_entry_is_a_dead_letter_or_runs_again() {
    let undone = CommitFound {
        effect: EffectState::Compensated,
        entry: Some(UndoState::Compensated),
        scope: Scope::EndedWhole,
        rollback_live: false,
        session: SessionState::Compensated,
        ..LATE
    };
    let letter = A::OpenDeadLetter(DeadLetterReason::LateCommit);
    let hears = of(SessionState::Compensated);
    check(undone, &[A::StoreResult, LATE_RESULT, letter], hears);
    let again = CommitFound { is_repeatable: true, ..undone };
    check(again, &[A::StoreResult, LATE_RESULT, A::NewEntry, A::MakeDue], hears);
}

#[test]
fn late_irreversible_is_residue_and_closes_its_dead_letter() {
    let late = CommitFound { tier: Tier::Irreversible, entry: None, ..LATE };
    let hears = of(SessionState::Compensating);
    for effect in [EffectState::Approved, EffectState::Unknown, EffectState::Failed] {
        let found = CommitFound { effect, ..late };
        check(found, &[A::Commit, A::CountResidue, A::MakeDue], hears);
    }
    let ended = CommitFound {
        effect: EffectState::Failed,
        scope: Scope::EndedWhole,
        rollback_live: false,
        session: SessionState::Compensated,
        ..late
    };
    check(ended, &[A::Commit, A::CountResidue], of(SessionState::Compensated));
    let open = CommitFound {
        dead_letter: Some(DeadLetterReason::OutcomeUnknown),
        session: SessionState::Halted,
        ..late
    };
    let actions = [A::Commit, A::CloseDeadLetter, A::CountResidue, A::MakeDue];
    check(open, &actions, of(SessionState::Halted));
}

#[test]
fn what_an_operator_said_stays_and_the_report_is_a_dead_letter() {
    let contradiction = A::Event(EffectEvent::Contradicted);
    for tier in [Tier::Compensable, Tier::Irreversible] {
        let said = CommitFound {
            effect: EffectState::Failed,
            tier,
            entry: None,
            operator_said_not_applied: true,
            ..LATE
        };
        let letter = A::OpenDeadLetter(DeadLetterReason::Contradicted);
        let actions = [A::StoreOnAttempt, contradiction, letter];
        check(said, &actions, Some(Reason::Contradicted));
        let open = CommitFound { dead_letter: Some(DeadLetterReason::Contradicted), ..said };
        check(open, &[A::StoreOnAttempt, contradiction], Some(Reason::Contradicted));
    }
    assert_eq!(Reason::Contradicted.code().as_str(), "ALREADY_EXISTS");
}

#[test]
fn a_stale_commit_stays_on_its_attempt() {
    let stale_event = A::Event(EffectEvent::StaleReport);
    let stale = CommitFound {
        is_current: false,
        effect: EffectState::Committed,
        entry: Some(UndoState::Skipped),
        ..FOUND
    };
    check(stale, &[A::StoreOnAttempt, stale_event, A::NewEntry], None);
    let late = CommitFound {
        scope: Scope::EndedWhole,
        session: SessionState::Compensated,
        effect: EffectState::Compensated,
        ..stale
    };
    let actions = [A::StoreOnAttempt, stale_event, A::NewEntry, A::MakeDue];
    check(late, &actions, of(SessionState::Compensated));
    // An idempotent tool's attempts share one entry, which stands already.
    let shared = CommitFound { entry: Some(UndoState::Pending), ..stale };
    check(shared, &[A::StoreOnAttempt, stale_event], None);
    let irreversible = CommitFound { tier: Tier::Irreversible, entry: None, ..late };
    let actions = [A::StoreOnAttempt, stale_event, A::CountResidue];
    check(irreversible, &actions, of(SessionState::Compensated));
}

#[test]
fn late_work_of_an_ended_partial_rollback_is_its_new_entry_alone() {
    let given_back = CommitFound {
        effect: EffectState::Compensated,
        entry: Some(UndoState::Compensated),
        scope: Scope::EndedPartial,
        rollback_live: false,
        is_repeatable: true,
        session: SessionState::Active,
        ..LATE
    };
    let again = [A::StoreResult, LATE_RESULT, A::NewEntry, A::StartLate];
    check(given_back, &again, None);
    // A live rollback of later calls covers the new entry as well.
    let live =
        CommitFound { rollback_live: true, session: SessionState::Compensating, ..given_back };
    check(live, &[A::StoreResult, LATE_RESULT, A::NewEntry, A::MakeDue], None);
    let letter = A::OpenDeadLetter(DeadLetterReason::LateCommit);
    let once = CommitFound { is_repeatable: false, ..given_back };
    check(once, &[A::StoreResult, LATE_RESULT, letter], None);
    for session in [SessionState::Completed, SessionState::Failed, SessionState::Halted] {
        let ended = CommitFound { session, ..given_back };
        assert_eq!(decide(&ended).actions, [A::StoreResult, LATE_RESULT, letter], "{session}");
        let skipped =
            CommitFound { effect: EffectState::Failed, entry: Some(UndoState::Skipped), ..ended };
        assert_eq!(decide(&skipped).actions, [A::Commit, letter], "{session}");
    }
    let skipped =
        CommitFound { effect: EffectState::Failed, entry: Some(UndoState::Skipped), ..given_back };
    check(skipped, &[A::Commit, A::NewEntry, A::StartLate], None);
    // What cannot be undone moves nothing.
    let irreversible = CommitFound { tier: Tier::Irreversible, entry: None, ..skipped };
    check(irreversible, &[A::Commit, A::CountResidue], None);
}

#[test]
fn a_call_outside_of_a_live_rollback_is_not_put_into_its_scope() {
    let below = CommitFound {
        effect: EffectState::Failed,
        entry: Some(UndoState::Skipped),
        scope: Scope::Outside,
        ..LATE
    };
    check(below, &[A::Commit, A::OweEntry], None);
    let running =
        CommitFound { effect: EffectState::Executing, entry: Some(UndoState::Pending), ..below };
    check(running, &[A::Commit], None);
    let irreversible = CommitFound { tier: Tier::Irreversible, entry: None, ..running };
    let irreversible = CommitFound { effect: EffectState::Approved, ..irreversible };
    check(irreversible, &[A::Commit], None);
}

#[test]
fn no_plan_moves_a_state_that_its_table_does_not() {
    use undolog_core::state::effect::transition;
    for effect in EffectState::ALL.iter().copied() {
        for entry in std::iter::once(None).chain(UndoState::ALL.iter().copied().map(Some)) {
            for tier in [Tier::Compensable, Tier::Irreversible] {
                // A granted effect is executing or approved by its tier, never the other.
                let other = match tier {
                    Tier::Compensable => EffectState::Approved,
                    _ => EffectState::Executing,
                };
                let is_undone = matches!(
                    effect,
                    EffectState::Compensating
                        | EffectState::Compensated
                        | EffectState::CompensationFailed
                );
                if effect == other || (is_undone && tier == Tier::Irreversible) {
                    continue;
                }
                let found = CommitFound { effect, entry, tier, ..LATE };
                for action in decide(&found).actions {
                    let event = match action {
                        A::Commit => EffectEvent::Committed,
                        A::Event(event) => event,
                        _ => continue,
                    };
                    let is_odd = event == EffectEvent::LateResult && !is_undone;
                    let moves = transition(Some(effect), event, tier).is_some();
                    assert!(moves || is_odd, "{found:?} {action:?}");
                }
            }
        }
    }
}
