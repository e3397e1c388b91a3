//! Effects and their entries: grants, evidence, approvals, and why an entry is finished.

use super::command::{Call, Tier};
use super::facts::{Decision, Facts, Model};
use super::judge::{Step, broken, from};
use super::observed::{EffectRow, EffectState, EntryRow, EntryState, Observed};
use super::verdict::Violation;

pub(crate) fn check(model: &mut Model, step: Step<'_>) -> Result<(), Violation> {
    for effect in &step.rows.effects {
        let Some(facts) = model.calls.get_mut(&effect.call) else {
            return broken(
                "§6 a refused call leaves no row",
                format!("{effect:?} exists and its call was never accepted"),
            );
        };
        grant(facts, effect)?;
        approval(facts, step.rows, effect)?;
        let facts = &*facts;
        evidence(facts, effect)?;
        state(facts, effect)?;
        undone(model, step, effect)?;
    }
    for (call, facts) in &model.calls {
        registered(*call, facts, step.rows)?;
    }
    for entry in &step.rows.entries {
        let before = step.seen.entry(entry.undo_id).map(|e| e.state);
        if before != Some(entry.state) {
            finished(model, step.rows, entry)?;
        }
    }
    Ok(())
}

fn grant(facts: &mut Facts, effect: &EffectRow) -> Result<(), Violation> {
    let live = facts.live().map(|(number, _)| number);
    match (effect.live_grant, live) {
        (true, Some(number)) if number == effect.attempt => Ok(()),
        (true, None) if facts.resumable && effect.attempt == facts.newest() => {
            facts.resumable = false;
            let newest = facts.newest();
            if let Some(run) = facts.attempts.get_mut(&newest) {
                run.live = true;
                run.lost = false;
            }
            Ok(())
        }
        (true, _) => broken(
            "§12 a grant is the answer Execute, at most one is live, and none after its report",
            format!("{effect:?} has a live grant; answered and not over is attempt {live:?}"),
        ),
        // The lease may have run out by itself (the clock, a sweep): learned.
        (false, Some(number)) if effect.state == EffectState::Unknown => {
            if let Some(run) = facts.attempts.get_mut(&number) {
                run.live = false;
                run.lost = true;
            }
            Ok(())
        }
        // A stale success may end the newer grant (§13.2; open point).
        (false, Some(_)) if !facts.successes.is_empty() => Ok(()),
        (false, Some(number)) => broken(
            "§6 a grant ends by a report or by its lease",
            format!("attempt {number} was granted and has no report, and {effect:?} has no grant"),
        ),
        (false, None) => Ok(()),
    }
}

fn approval(facts: &mut Facts, rows: &Observed, effect: &EffectRow) -> Result<(), Violation> {
    let waiting = matches!(facts.decision, Decision::Pending | Decision::Approved);
    let asked = effect.asked_position;
    if effect.state == EffectState::Rejected && waiting {
        let voided = asked.is_some_and(|p| rows.in_scope(p));
        if !voided {
            return broken(
                "§5 an approval is rejected by a decision or by a rollback over asked_position",
                format!("{effect:?} was rejected; the rollbacks are {:?}", rows.rollbacks),
            );
        }
        facts.decision = Decision::Voided;
        return Ok(());
    }
    let live = rows.live_rollback();
    let covered = live.is_some_and(|r| asked.is_some_and(|p| from(r) <= p));
    if waiting && covered {
        return broken(
            "§7 Start rejects pending and ungranted approvals in scope",
            format!("{effect:?} is still open under {live:?}"),
        );
    }
    let expected = match facts.decision {
        // §13.2: a success of an earlier attempt stands for the call, whatever is decided.
        _ if effect.state == EffectState::Committed && !facts.successes.is_empty() => true,
        Decision::Pending => effect.state == EffectState::Pending,
        Decision::Approved => effect.state == EffectState::Approved,
        Decision::None => true,
        Decision::Spent => effect.state != EffectState::Pending,
        // A contradiction may have been settled as "it happened".
        _ if facts.contradiction_settled && effect.state == EffectState::Committed => true,
        _ => effect.state == EffectState::Rejected,
    };
    if facts.irreversible() && !expected {
        return broken(
            "§5/§8 the effect follows the decision",
            format!("{effect:?} after the decision {:?}", facts.decision),
        );
    }
    Ok(())
}

fn evidence(facts: &Facts, effect: &EffectRow) -> Result<(), Violation> {
    if facts.contradicted || facts.contradiction_settled {
        return Ok(());
    }
    for known in &facts.successes {
        if !effect.results.contains(known) {
            return broken(
                "§12 an acknowledged commit survives",
                format!("success (attempt, value) {known:?} is not among {effect:?}"),
            );
        }
    }
    if let Some(extra) = effect.results.iter().find(|r| !facts.successes.contains(r)) {
        return broken(
            "§5 a result comes from a report",
            format!("nobody reported {extra:?}, and {effect:?} has it"),
        );
    }
    Ok(())
}

fn state(facts: &Facts, effect: &EffectRow) -> Result<(), Violation> {
    use EffectState::*;
    let undo = matches!(effect.state, Compensating | Compensated | CompensationFailed);
    if effect.tier == Tier::Irreversible && undo {
        return broken("§7 an irreversible effect is never undone", format!("{effect:?}"));
    }
    let Some(run) = facts.attempt(effect.attempt) else {
        return Ok(());
    };
    let disputed = facts.contradicted || facts.contradiction_settled;
    let allowed = match effect.state {
        Committed => !facts.successes.is_empty(),
        FailedNotApplied => run.not_applied,
        FailedMaybeApplied => run.failed,
        Unknown => run.lost,
        Executing => run.live,
        _ => true,
    };
    // Evidence wins over Fail, never the reverse.
    let lost = run.success.is_some() && !undo && effect.state != Committed;
    if disputed || allowed && !lost {
        return Ok(());
    }
    broken(
        "§5 the state follows the evidence (a success wins over a Fail)",
        format!("{effect:?}, but its attempt is known as {run:?}"),
    )
}

/// An effect is only undone where somebody asked for it.
fn undone(model: &Model, step: Step<'_>, effect: &EffectRow) -> Result<(), Violation> {
    use EffectState::{Compensated, Compensating, CompensationFailed};
    let undo = |s: EffectState| matches!(s, Compensating | Compensated | CompensationFailed);
    let before = step.seen.effect(effect.call).is_some_and(|e| undo(e.state));
    let covered = |e: &EntryRow| e.call == effect.call && model.scope.covers(e.position, step.rows);
    if !undo(effect.state) || before || step.rows.entries.iter().any(covered) {
        return Ok(());
    }
    // A human has undone it by hand.
    let by_hand = |e: &EntryRow| e.call == effect.call && model.by_hand.contains(&e.undo_id);
    let settled = model.facts(effect.call).is_some_and(|facts| facts.contradiction_settled);
    if settled || step.rows.entries.iter().any(by_hand) {
        return Ok(());
    }
    broken(
        "§13.1 nothing is undone that nobody asked to undo",
        format!("{effect:?}; what was asked for begins at {:?}", model.scope.from(step.rows)),
    )
}

/// The undo entry is there before the tool runs.
fn registered(call: Call, facts: &Facts, rows: &Observed) -> Result<(), Violation> {
    let Some((number, _)) = facts.live() else {
        return Ok(());
    };
    let mine = |e: &&EntryRow| e.call == call;
    let own = rows.entries.iter().filter(mine).any(|e| e.attempt == number || facts.shares_entry());
    if facts.irreversible() != own {
        return Ok(());
    }
    broken(
        "§5 a compensable grant has its undo entry in the same transaction, an irreversible none",
        format!("call {call} attempt {number} is granted; the entries are {:?}", rows.entries),
    )
}

/// Why an entry became what it is.
fn finished(model: &Model, rows: &Observed, entry: &EntryRow) -> Result<(), Violation> {
    match entry.state {
        EntryState::Compensated => {
            let applied = rows.sent.iter().any(|s| s.undo_id == entry.undo_id && s.applied);
            let by_hand = model.by_hand.contains(&entry.undo_id);
            if applied || by_hand || model.late_success.contains(&entry.undo_id) {
                return Ok(());
            }
            broken(
                "§7 compensated means that a call succeeded or a human said so",
                format!("{entry:?} without either"),
            )
        }
        EntryState::Skipped => skipped(model, rows, entry),
        EntryState::Failed => {
            if rows.letters.iter().any(|l| l.undo_id == Some(entry.undo_id)) {
                return Ok(());
            }
            broken(
                "§7 exhausted or permanent: the entry fails with one dead letter",
                format!("{entry:?} has none among {:?}", rows.letters),
            )
        }
        EntryState::Pending | EntryState::Running => Ok(()),
    }
}

fn skipped(model: &Model, rows: &Observed, entry: &EntryRow) -> Result<(), Violation> {
    if entry.skip_reason.as_deref().is_none_or(|r| r.trim().is_empty()) {
        return broken("§12 skipped with a reason", format!("{entry:?} has none"));
    }
    let run = model.facts(entry.call).and_then(|f| f.attempt(entry.attempt));
    let reported = run.is_some_and(|a| (a.not_applied || a.failed) && a.success.is_none());
    let superseded =
        rows.entries.iter().any(|e| e.call == entry.call && e.position > entry.position);
    if reported || superseded || model.skipped_by_hand.contains(&entry.undo_id) {
        return Ok(());
    }
    broken(
        "§5/§12 an entry is skipped only when its attempt was reported as failed, or by a human",
        format!("{entry:?}; its attempt is known as {run:?}"),
    )
}
