//! Every cell of the Intercept table.

use undolog_core::intercept::{Context, Decision, Found, RejectedCause, decide};
use undolog_core::state::SessionState;
use undolog_core::{Reason, Tier};

use Decision::{
    AwaitingApproval, GrantApproved, NewAttempt, NewEffect, Refuse, Replay, SafeExecute,
    SameExecute,
};
use SessionState::{
    Active, AwaitingApproval as Awaiting, Compensated, Compensating, Completed, Failed, Halted,
};

fn context(tier: Tier) -> Context {
    Context { tier, sealed: false, shared_steps: false, late_rollback: false }
}

/// Checks one row: the cells of active, awaiting and completed; `None` in `other` means that every
/// other state answers `SESSION_<STATE>`.
fn row(found: Found, tier: Tier, cells: [Decision; 3], other: Option<Decision>) {
    let columns = [Active, Awaiting, Completed].into_iter().zip(cells);
    for (session, expected) in columns {
        assert_eq!(decide(found, session, context(tier)), expected, "{found:?} {session} {tier}");
    }
    let names = [
        (Failed, Reason::SessionFailed),
        (Compensating, Reason::SessionCompensating),
        (Compensated, Reason::SessionCompensated),
        (Halted, Reason::SessionHalted),
    ];
    for (session, reason) in names {
        let expected = other.unwrap_or(Refuse(reason));
        assert_eq!(decide(found, session, context(tier)), expected, "{found:?} {session} {tier}");
    }
}

const JOURNALLED: [Tier; 2] = [Tier::Compensable, Tier::Irreversible];

#[test]
fn committed() {
    for tier in JOURNALLED {
        row(Found::Committed, tier, [Replay; 3], None);
    }
}

#[test]
fn live_grant() {
    let completed = Refuse(Reason::SessionCompleted);
    for tier in JOURNALLED {
        let same = Found::LiveGrant { same_token: true };
        row(same, tier, [SameExecute, SameExecute, completed], None);
        let other = Found::LiveGrant { same_token: false };
        let busy = Refuse(Reason::InProgress);
        row(other, tier, [busy, busy, completed], None);
    }
}

#[test]
fn approved_and_pending() {
    let completed = Refuse(Reason::SessionCompleted);
    let approved = Found::ApprovedUngranted;
    row(approved, Tier::Irreversible, [GrantApproved, GrantApproved, completed], None);
    let waits = [AwaitingApproval, AwaitingApproval, completed];
    row(Found::Pending, Tier::Irreversible, waits, None);
}

#[test]
fn failed_not_applied() {
    let awaiting = Refuse(Reason::SessionAwaitingApproval);
    let completed = Refuse(Reason::SessionCompleted);
    for tier in JOURNALLED {
        let new_approval = tier == Tier::Irreversible;
        let again = NewAttempt { same_entry: false, new_approval };
        let free = Found::FailedNotApplied { step_taken: false };
        row(free, tier, [again, awaiting, completed], None);
        let taken = Found::FailedNotApplied { step_taken: true };
        let conflict = Refuse(Reason::StepConflict);
        row(taken, tier, [conflict, awaiting, completed], None);
        let shared = Context { shared_steps: true, ..context(tier) };
        assert_eq!(decide(taken, Active, shared), again);
    }
}

#[test]
fn unknown_or_maybe_applied() {
    let unknown = Refuse(Reason::OutcomeUnknown);
    for tier in JOURNALLED {
        row(Found::UnknownOrMaybe { idempotent: false }, tier, [unknown; 3], None);
        let again = NewAttempt { same_entry: true, new_approval: tier == Tier::Irreversible };
        row(Found::UnknownOrMaybe { idempotent: true }, tier, [again, again, unknown], None);
    }
}

#[test]
fn rejected_in_every_session_state() {
    let causes = [
        (RejectedCause::Rejected, Reason::ApprovalRejected),
        (RejectedCause::TimedOut, Reason::ApprovalTimedOut),
        (RejectedCause::Lapsed, Reason::ApprovalLapsed),
        (RejectedCause::Revoked, Reason::ApprovalRevoked),
        (RejectedCause::Voided, Reason::ApprovalVoided),
    ];
    for (cause, reason) in causes {
        let cell = Refuse(reason);
        row(Found::Rejected { cause }, Tier::Irreversible, [cell; 3], Some(cell));
    }
}

#[test]
fn undone_in_every_session_state() {
    let rows = [
        (Found::Compensating, Reason::UndoRunning),
        (Found::Compensated, Reason::AlreadyUndone),
        (Found::CompensationFailed, Reason::UndoFailed),
    ];
    for (found, reason) in rows {
        row(found, Tier::Compensable, [Refuse(reason); 3], Some(Refuse(reason)));
    }
}

#[test]
fn step_held() {
    let conflict = Refuse(Reason::StepConflict);
    let completed = Refuse(Reason::SessionCompleted);
    for tier in JOURNALLED {
        row(Found::StepHeld, tier, [conflict, conflict, completed], None);
        let shared = Context { shared_steps: true, ..context(tier) };
        assert_eq!(decide(Found::StepHeld, Active, shared), NewEffect);
    }
}

#[test]
fn nothing() {
    let completed = Refuse(Reason::SessionCompleted);
    let awaiting = Refuse(Reason::SessionAwaitingApproval);
    row(Found::Nothing, Tier::Compensable, [NewEffect, awaiting, completed], None);
    row(Found::Nothing, Tier::Irreversible, [NewEffect, NewEffect, completed], None);
}

#[test]
fn a_safe_call_runs_freely_and_leaves_no_row() {
    for session in SessionState::ALL {
        for found in [Found::Nothing, Found::StepHeld] {
            assert_eq!(decide(found, *session, context(Tier::Safe)), SafeExecute);
        }
    }
}

#[test]
fn a_sealed_session_neither_replays_nor_runs() {
    for found in [Found::Committed, Found::Nothing, Found::Compensated] {
        for session in SessionState::ALL {
            let sealed = Context { sealed: true, ..context(Tier::Compensable) };
            assert_eq!(decide(found, *session, sealed), Refuse(Reason::SessionExpired));
        }
    }
}

#[test]
fn while_only_late_work_is_undone_the_agent_is_asked_to_wait() {
    for tier in JOURNALLED {
        let late = Context { late_rollback: true, ..context(tier) };
        for found in [Found::Committed, Found::Nothing, Found::Pending, Found::ApprovedUngranted] {
            assert_eq!(decide(found, Compensating, late), Refuse(Reason::UndoRunning), "{found:?}");
        }
    }
    assert_eq!(Reason::UndoRunning.code().as_str(), "ABORTED");
    assert!(Reason::UndoRunning.retry_after_ms().is_some());
}

#[test]
fn a_contradicted_call_is_granted_to_nobody() {
    for tier in JOURNALLED {
        row(
            Found::Contradicted,
            tier,
            [Refuse(Reason::Contradicted); 3],
            Some(Refuse(Reason::Contradicted)),
        );
    }
}
