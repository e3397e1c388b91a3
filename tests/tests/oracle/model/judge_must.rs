//! What must be done when nothing is due any more (§12: compensated, skipped with a reason,
//! residue, or in exactly one open dead letter).

use super::command::{Call, Position};
use super::facts::{Attempt, Facts, Model};
use super::judge::{broken, from};
use super::judge_session;
use super::observed::{
    EffectState, EntryRow, EntryState, Observed, RollbackKind, RollbackState, SessionState,
};
use super::scope::Ask;
use super::verdict::Violation;

pub(crate) fn check(model: &Model, rows: &Observed) -> Result<(), Violation> {
    let live = rows.live_rollback();
    if live.is_some_and(|r| rows.granted_from(from(r)).is_some()) {
        return Ok(()); // It drains: nothing is due before the grants are over.
    }
    if let Some(live) = live.filter(|r| r.state != RollbackState::Halted) {
        return broken(
            "§12 the walk goes on by itself",
            format!("nothing is due, and the rollback {live:?} is neither ended nor halted"),
        );
    }
    session(model, rows)?;
    for entry in &rows.entries {
        finished(model, rows, entry)?;
    }
    for (call, facts) in &model.calls {
        match rows.effect(*call) {
            Some(effect) if facts.irreversible() => {
                irreversible(*call, facts, rows, effect.state, effect.position)?;
            }
            Some(_) => compensable(*call, facts, rows)?,
            None => {}
        }
    }
    late(model, rows)?;
    let (residue, unverified) =
        (judge_session::residue(model, rows, false), judge_session::unverified(rows));
    let residue_max = judge_session::residue(model, rows, true);
    let disputed = model.calls.values().any(|f| f.contradiction_settled);
    if !disputed
        && (!(residue..=residue_max).contains(&rows.residue) || rows.unverified != unverified)
    {
        return broken(
            "§13.1 counts on the session add up",
            format!(
                "residue {} and unverified {} are stored; the rows say {residue} and {unverified}",
                rows.residue, rows.unverified
            ),
        );
    }
    Ok(())
}

fn session(model: &Model, rows: &Observed) -> Result<(), Violation> {
    let over = matches!(rows.session, SessionState::Compensated | SessionState::Halted);
    if model.scope.whole == Ask::Must && !over {
        return broken(
            "§5 a whole rollback ends compensated or halted",
            format!("nothing is due, and the session is {:?}", rows.session),
        );
    }
    let reason = !rows.letters.is_empty()
        || rows.entries.iter().any(|e| e.state == EntryState::Failed)
        || model.halt_due
        || model.settled
        // Open point: the last letter was closed by late evidence, which "moves nothing".
        || model.closed_by_evidence;
    if rows.session == SessionState::Halted && !reason {
        return broken(
            "§5 halted needs an open entry or an open dead letter, else compensated (or back)",
            format!("entries {:?}", rows.entries),
        );
    }
    Ok(())
}

/// A letter that stops the walk: the session waits for a human.
fn blocked(rows: &Observed) -> bool {
    rows.session == SessionState::Halted
        && (rows.settled
            || rows
                .letters
                .iter()
                .any(|l| !matches!(l.reason.as_str(), "MISSING_RESULT" | "OUTCOME_UNKNOWN")))
}

fn finished(model: &Model, rows: &Observed, entry: &EntryRow) -> Result<(), Violation> {
    let letters = rows.letters.iter().filter(|l| l.undo_id == Some(entry.undo_id)).count();
    match entry.state {
        EntryState::Compensated | EntryState::Skipped => Ok(()),
        EntryState::Failed if letters == 1 || rows.settled => Ok(()),
        EntryState::Failed => {
            broken("§12 exactly one open dead letter", format!("{entry:?} has {letters}"))
        }
        EntryState::Pending | EntryState::Running => {
            let due = rows.in_scope(entry.position) || model.scope.whole == Ask::Must;
            if !due || blocked(rows) {
                return Ok(());
            }
            broken(
                "§12 what a rollback covers ends compensated, skipped, or in a dead letter",
                format!(
                    "{entry:?} is still open; rollbacks {:?}, letters {:?}",
                    rows.rollbacks, rows.letters
                ),
            )
        }
    }
}

fn irreversible(
    call: Call,
    facts: &Facts,
    rows: &Observed,
    state: EffectState,
    position: Option<Position>,
) -> Result<(), Violation> {
    let open = matches!(state, EffectState::Unknown | EffectState::FailedMaybeApplied);
    let met = position.is_some_and(|p| rows.in_scope(p));
    let letters =
        rows.letters.iter().filter(|l| l.call == call && l.reason == "OUTCOME_UNKNOWN").count();
    let committed = !facts.successes.is_empty();
    if committed && letters > 0 {
        return broken(
            "§6 a late Commit closes the dead letter of an irreversible effect",
            format!("call {call} is committed and has {letters} open OUTCOME_UNKNOWN letters"),
        );
    }
    // While the drain of a halted rollback is not over, its letter is not due yet.
    let drained = rows.live_rollback().is_none_or(|_| !blocked(rows));
    if !open || !met || committed || letters == 1 || facts.letter_closed || !drained {
        return Ok(());
    }
    broken(
        "§7 an irreversible effect that is unknown gets exactly one dead letter",
        format!("call {call} is {state:?} in a rollback's scope and has {letters}"),
    )
}

/// Every attempt that may have run has its entry, and a known success has not only skipped ones.
fn compensable(call: Call, facts: &Facts, rows: &Observed) -> Result<(), Violation> {
    let whole = rows.rollbacks.iter().any(|r| r.kind == RollbackKind::Whole);
    for (number, run) in &facts.attempts {
        if run.not_applied && run.success.is_none() {
            continue;
        }
        let same = |e: &&EntryRow| e.call == call && (e.attempt == *number || facts.shares_entry());
        let Some(top) = rows.entries.iter().filter(same).max_by_key(|e| e.position) else {
            return broken(
                "§12 each committed, unknown or maybe-applied effect can be undone",
                format!("call {call} attempt {number} has no undo entry"),
            );
        };
        if whole && lost(run, top) && !facts.letter_closed && !has_letter(rows, call) {
            return broken(
                "§12 what a rollback covers ends compensated, skipped, or in a dead letter",
                format!("call {call} attempt {number} is a known success and was only {top:?}"),
            );
        }
    }
    Ok(())
}

fn lost(run: &Attempt, top: &EntryRow) -> bool {
    run.success.is_some() && top.state == EntryState::Skipped
}

fn has_letter(rows: &Observed, call: Call) -> bool {
    rows.letters.iter().any(|l| l.call == call)
}

/// Late evidence has its new entry.
fn late(model: &Model, rows: &Observed) -> Result<(), Violation> {
    for (call, attempt, after) in &model.entries_due {
        // Below a live partial rollback it is owed its entry until that ends.
        let old = rows.top_entry(*call, *attempt).map(|entry| entry.position);
        let live = rows.live_rollback().map(|live| live.from);
        if old.zip(live).is_some_and(|(old, live)| old < live) {
            continue;
        }
        let new = rows.entries.iter().any(|e| {
            // An entry may have come to name the attempt for which the result stands.
            e.call == *call && e.attempt >= *attempt && e.position > *after
        });
        if !new {
            return broken(
                "§5/§6 a success of a skipped attempt gets a new entry on top",
                format!("call {call} attempt {attempt} has no entry above {after}"),
            );
        }
    }
    for late in model.scope.late.iter().filter(|l| l.ask == Ask::Must) {
        let Some(position) = late.from(rows) else {
            return broken(
                "§13.1 late work is a new entry on top and a rollback over it",
                format!("call {} has no entry above {}", late.call, late.after),
            );
        };
        if !rows.in_scope(position) {
            return broken(
                "§13.1 late work is a new entry on top and a rollback over it",
                format!("no rollback covers the new entry at {position} of call {}", late.call),
            );
        }
    }
    Ok(())
}
