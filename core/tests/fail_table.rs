//! The rules of Fail.

use undolog_core::fail::{FailAction as A, FailFound, FailPlan, LiveRollback, decide};
use undolog_core::state::{
    DeadLetterReason, EffectEvent, EffectState, FailedEffect, Outcome, SessionState, UndoState,
};
use undolog_core::{Reason, Tier};

/// A granted compensable call in an active session, about to fail.
const FOUND: FailFound = FailFound {
    says: FailedEffect::MaybeApplied,
    effect: EffectState::Executing,
    tier: Tier::Compensable,
    granted: true,
    is_current: true,
    has_result: false,
    entry: Some(UndoState::Pending),
    dead_letter: None,
    rollback: LiveRollback::None,
    continues: false,
    session: SessionState::Active,
};

const ROLLING_BACK: FailFound =
    FailFound { rollback: LiveRollback::Covers, session: SessionState::Compensating, ..FOUND };

const STALE: A = A::Event(EffectEvent::StaleReport);

#[track_caller]
fn check(found: FailFound, actions: &[A], reply: Option<Reason>) {
    assert_eq!(decide(&found), FailPlan { actions: actions.to_vec(), reply }, "{found:?}");
}

#[test]
fn it_records_and_by_default_fails_the_session() {
    let not_applied = [A::Fail(Outcome::NotApplied), A::SkipEntry, A::FailSession];
    let rows = [
        (FailedEffect::MaybeApplied, vec![A::Fail(Outcome::MaybeApplied), A::FailSession]),
        (FailedEffect::NotApplied, not_applied.to_vec()),
        (FailedEffect::Unknown, vec![A::MarkUnknown, A::FailSession]),
    ];
    for (says, actions) in rows {
        for session in [SessionState::Active, SessionState::AwaitingApproval] {
            check(FailFound { says, session, ..FOUND }, &actions, None);
            let recorded = &actions[..actions.len() - 1];
            check(FailFound { says, session, continues: true, ..FOUND }, recorded, None);
        }
    }
}

#[test]
fn an_irreversible_call_has_no_entry_to_skip() {
    let granted = FailFound {
        effect: EffectState::Approved,
        tier: Tier::Irreversible,
        entry: None,
        says: FailedEffect::NotApplied,
        continues: true,
        ..FOUND
    };
    check(granted, &[A::Fail(Outcome::NotApplied)], None);
    check(FailFound { granted: false, ..granted }, &[], Some(Reason::NotGranted));
}

#[test]
fn during_a_rollback_it_makes_the_walk_due() {
    let failed = [A::Fail(Outcome::MaybeApplied), A::MakeDue];
    check(ROLLING_BACK, &failed, None);
    let not_applied = FailFound { says: FailedEffect::NotApplied, ..ROLLING_BACK };
    let skipped = [A::Fail(Outcome::NotApplied), A::SkipEntry, A::MakeDue];
    check(not_applied, &skipped, None);
    for effect in [EffectState::Unknown, EffectState::Executing] {
        check(FailFound { effect, ..not_applied }, &skipped, None);
    }
}

#[test]
fn not_applied_is_an_event_only_once_the_entry_runs() {
    let late = FailFound { says: FailedEffect::NotApplied, ..ROLLING_BACK };
    let rows = [
        (EffectState::Compensating, UndoState::Running),
        (EffectState::CompensationFailed, UndoState::Failed),
        (EffectState::Compensated, UndoState::Compensated),
    ];
    for (effect, entry) in rows {
        check(FailFound { effect, entry: Some(entry), ..late }, &[STALE], None);
    }
    let unknown = FailFound { effect: EffectState::Unknown, ..late };
    let missing_result = FailFound { entry: Some(UndoState::Failed), ..unknown };
    check(missing_result, &[STALE, A::MakeDue], None);
}

#[test]
fn on_committed_it_is_refused_and_an_event() {
    let conflict = [A::Event(EffectEvent::ResultConflict)];
    for says in FailedEffect::ALL.iter().copied() {
        let committed =
            FailFound { says, effect: EffectState::Committed, has_result: true, ..FOUND };
        check(committed, &conflict, Some(Reason::ResultConflict));
        let undone = FailFound { effect: EffectState::Compensated, ..committed };
        check(undone, &conflict, Some(Reason::ResultConflict));
    }
    assert_eq!(Reason::ResultConflict.code().as_str(), "ALREADY_EXISTS");
}

#[test]
fn on_unknown_only_not_applied_changes_the_state() {
    let unknown = FailFound { effect: EffectState::Unknown, ..FOUND };
    check(unknown, &[STALE, A::FailSession], None);
    check(FailFound { says: FailedEffect::Unknown, ..unknown }, &[STALE, A::FailSession], None);
    let says = FailedEffect::NotApplied;
    let actions = [A::Fail(Outcome::NotApplied), A::SkipEntry, A::FailSession];
    check(FailFound { says, ..unknown }, &actions, None);
    let irreversible = FailFound {
        says,
        tier: Tier::Irreversible,
        entry: None,
        dead_letter: Some(DeadLetterReason::OutcomeUnknown),
        rollback: LiveRollback::Covers,
        session: SessionState::Halted,
        ..unknown
    };
    let actions = [A::Fail(Outcome::NotApplied), A::CloseDeadLetter, A::MakeDue];
    check(irreversible, &actions, None);
}

#[test]
fn a_stale_or_repeated_one_is_only_an_event() {
    for says in FailedEffect::ALL.iter().copied() {
        check(FailFound { says, is_current: false, ..FOUND }, &[STALE], None);
        check(FailFound { says, effect: EffectState::Failed, ..FOUND }, &[STALE], None);
    }
}

#[test]
fn what_was_never_granted_has_nothing_to_report() {
    for effect in [EffectState::Pending, EffectState::Rejected] {
        let found = FailFound { effect, tier: Tier::Irreversible, granted: false, ..FOUND };
        check(found, &[], Some(Reason::NotGranted));
    }
}

#[test]
fn below_a_partial_rollback_it_fails_the_session_all_the_same() {
    let below =
        FailFound { rollback: LiveRollback::Above, session: SessionState::Compensating, ..FOUND };
    check(below, &[A::Fail(Outcome::MaybeApplied), A::FailSession], None);
    check(FailFound { continues: true, ..below }, &[A::Fail(Outcome::MaybeApplied)], None);
    check(
        FailFound { session: SessionState::Halted, ..below },
        &[A::Fail(Outcome::MaybeApplied), A::FailSession],
        None,
    );
}
