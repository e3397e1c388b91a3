//! The session: its state, its counts, and what its live rollback says about it.

use super::facts::Model;
use super::judge::{Step, broken, from};
use super::observed::{
    EffectState, EntryState, Observed, RollbackKind, RollbackState, SessionState,
};
use super::scope::Ask;
use super::verdict::Violation;

pub(crate) fn check(model: &Model, step: Step<'_>) -> Result<(), Violation> {
    state(model, step)?;
    rollback(model, step.rows)?;
    counts(model, step.rows)
}

fn state(model: &Model, step: Step<'_>) -> Result<(), Violation> {
    let rows = step.rows;
    let rule = match rows.session {
        SessionState::Active | SessionState::AwaitingApproval => goes_on(model, rows),
        SessionState::Completed | SessionState::Failed => ended(model, rows),
        SessionState::Compensating | SessionState::Compensated | SessionState::Halted => {
            rolled_back(model, step)
        }
    };
    let settled = rows.settled && !model.settled;
    let rule = rule.or(settled.then_some("§5 only `sessions settle` sets settled_at"));
    let Some(rule) = rule else { return Ok(()) };
    broken(
        rule,
        format!(
            "the session is {:?}; live rollback {:?}; asked for from {:?}; open letters {:?}; \
             entries {:?}",
            rows.session,
            rows.live_rollback(),
            model.scope.from(rows),
            rows.letters,
            rows.entries
        ),
    )
}

/// The rule that a session breaks which takes calls.
fn goes_on(model: &Model, rows: &Observed) -> Option<&'static str> {
    let pending = rows.effects.iter().any(|e| e.state == EffectState::Pending);
    if (rows.session == SessionState::AwaitingApproval) != pending {
        Some("§5 awaiting_approval exactly while an approval is pending")
    } else if model.scope.whole == Ask::Must {
        Some("§5/§13.1 a whole rollback takes the session to failed")
    } else if model.halt_due {
        Some("§5 a rejection or time-out halts the session")
    } else if model.completed || model.failed {
        Some("§5 a finished session does not become active")
    } else if rows.live_rollback().is_some() {
        Some("§5 a session with a live rollback is compensating")
    } else {
        None
    }
}

fn ended(model: &Model, rows: &Observed) -> Option<&'static str> {
    let whole = model.scope.whole;
    if rows.session == SessionState::Failed {
        let known = model.failed || whole != Ask::No;
        return (!known).then_some("§5 failed: by Fail, a lease or a policy");
    }
    let wrong = !model.completed || whole == Ask::Must || rows.live_rollback().is_some();
    wrong.then_some("§5 completed: by Complete, and without a rollback")
}

fn rolled_back(model: &Model, Step { seen, rows, .. }: Step<'_>) -> Option<&'static str> {
    let live = rows.live_rollback();
    let whole = model.scope.whole;
    match rows.session {
        SessionState::Compensating => live
            .is_none_or(|r| r.state == RollbackState::Halted)
            .then_some("§5 compensating has a live rollback that is not halted"),
        SessionState::Compensated if whole == Ask::No => {
            Some("§5 compensated is the end of a whole rollback")
        }
        SessionState::Compensated => (open_entry(rows) || !rows.letters.is_empty())
            .then_some("§5 compensated needs no open entry and no open dead letter, else halted"),
        _ if live.is_some_and(|r| r.state != RollbackState::Halted) => {
            Some("§13.1 a documented halt waits until the live rollback ends")
        }
        _ if live.is_none() && whole == Ask::No && !model.halt_due => {
            Some("§13.1 an ended partial rollback is never halted again")
        }
        _ => (seen.session != SessionState::Halted && !model.halt_due && rows.letters.is_empty())
            .then_some("§5 halted by a dead letter"),
    }
}

fn open_entry(rows: &Observed) -> bool {
    rows.entries
        .iter()
        .any(|e| matches!(e.state, EntryState::Pending | EntryState::Running | EntryState::Failed))
}

fn rollback(model: &Model, rows: &Observed) -> Result<(), Violation> {
    let Some(live) = rows.live_rollback() else {
        return Ok(());
    };
    let state_fits = match live.state {
        RollbackState::Halted => rows.session == SessionState::Halted,
        _ => rows.session == SessionState::Compensating,
    };
    if !state_fits {
        return broken(
            "§5 the session's state is its live rollback's",
            format!("the session is {:?}, its rollback {live:?}", rows.session),
        );
    }
    let lowest = rows.entries.iter().map(|e| e.position).min();
    if model.scope.whole == Ask::Must
        && live.kind == RollbackKind::Partial
        && lowest.is_some_and(|p| p < from(live))
    {
        return broken(
            "§7/§13.1 a wider request widens the live rollback",
            format!("the whole session was to be undone, and the live rollback is {live:?}"),
        );
    }
    Ok(())
}

/// The committed irreversible effects that a rollback met.
/// Open point 19: what is asked again may have no position; `unplaced` says whether it counts.
pub(crate) fn residue(model: &Model, rows: &Observed, unplaced: bool) -> u64 {
    let counted = rows.effects.iter().filter(|e| {
        let facts = model.facts(e.call);
        let committed =
            facts.is_some_and(|f| f.irreversible() && !f.successes.is_empty() && !f.contradicted);
        committed && e.position.map_or(unplaced, |p| rows.in_scope(p))
    });
    counted.count() as u64
}

/// The entries that were skipped for want of a result.
pub(crate) fn unverified(rows: &Observed) -> u64 {
    let reason = |r: &str| r.eq_ignore_ascii_case("failed_without_result");
    let skipped = |e: &&super::observed::EntryRow| e.skip_reason.as_deref().is_some_and(reason);
    rows.entries.iter().filter(skipped).count() as u64
}

fn counts(model: &Model, rows: &Observed) -> Result<(), Violation> {
    let (residue, unverified) = (residue(model, rows, true), unverified(rows));
    // Open point: a contradiction that was settled as "committed" may count.
    let disputed = model.calls.values().filter(|f| f.contradiction_settled).count() as u64;
    if rows.residue > residue + disputed {
        return broken(
            "§13.1 counts add up: residue",
            format!("residue_count is {}, and {residue} effects are residue", rows.residue),
        );
    }
    if rows.unverified > unverified {
        return broken(
            "§13.1 counts add up: unverified",
            format!("unverified is {}, and {unverified} entries are", rows.unverified),
        );
    }
    Ok(())
}
