//! What was called: only what was asked for (§13.1), drained first, in LIFO order (§7, §12).

use super::command::{OnDeadLetter, Position};
use super::facts::Model;
use super::judge::{Step, broken, from};
use super::observed::{EntryRow, EntryState, Observed, RollbackRow, RollbackState, SentRow};
use super::verdict::Violation;

pub(crate) fn check(model: &Model, step: Step<'_>) -> Result<(), Violation> {
    let (old, new) = (&step.seen.sent, &step.rows.sent);
    if new.len() < old.len() || old.iter().zip(new).any(|(a, b)| a.undo_id != b.undo_id) {
        return broken("driver: the list of sent compensations only grows", format!("{new:?}"));
    }
    for (index, sent) in new.iter().enumerate().skip(old.len()) {
        one(model, step, index, sent)?;
    }
    Ok(())
}

fn one(model: &Model, step: Step<'_>, index: usize, sent: &SentRow) -> Result<(), Violation> {
    let Step { seen, rows, .. } = step;
    let Some(entry) = rows.entry(sent.undo_id) else {
        return broken("§7 the key of a call is its undo_id", format!("{sent:?} has no entry"));
    };
    if entry.call != sent.call || entry.position != sent.position {
        return broken("§7 the key of a call is its undo_id", format!("{sent:?} is not {entry:?}"));
    }
    if !model.scope.covers(entry.position, rows) {
        return broken(
            "§13.1 nothing is undone that nobody asked to undo",
            format!(
                "{sent:?} was sent; what was asked for begins at {:?} (ended rollbacks: {:?})",
                model.scope.from(rows),
                rows.rollbacks
            ),
        );
    }
    let Some(rollback) = rollback_of(step, entry.position) else {
        return broken(
            "§13.1 only a live rollback undoes, and only in its scope",
            format!("{sent:?} was sent; the rollbacks are {:?}", rows.rollbacks),
        );
    };
    once(model, seen, entry, &rows.sent[..index], sent)?;
    drained(step, rollback, sent)?;
    lifo(model, step, index, from(rollback), entry)
}

/// The rollback that was live during this step and covers the position.
fn rollback_of(Step { seen, rows, .. }: Step<'_>, position: Position) -> Option<&RollbackRow> {
    let ended = |r: &RollbackRow| seen.rollbacks.iter().any(|o| o.id == r.id && !o.live);
    let during = rows.rollbacks.iter().find(|r| r.live || !ended(r));
    during.filter(|r| from(r) <= position && (r.live || r.until.is_none_or(|u| position <= u)))
}

fn once(
    model: &Model,
    seen: &Observed,
    entry: &EntryRow,
    earlier: &[SentRow],
    sent: &SentRow,
) -> Result<(), Violation> {
    let before = seen.entry(entry.undo_id).map(|e| e.state);
    if matches!(before, Some(EntryState::Compensated | EntryState::Skipped)) {
        return broken(
            "§12 one outcome is recorded: a finished entry is not called again",
            format!("{sent:?} was sent; the entry was {before:?}"),
        );
    }
    if model.late_success.contains(&entry.undo_id) {
        return broken(
            "§7 the walk checks for an already successful attempt",
            format!("{sent:?} was sent after its success had been written"),
        );
    }
    let last = earlier.iter().rev().find(|s| s.undo_id == sent.undo_id);
    if last.is_some_and(|s| s.attempt >= sent.attempt) {
        return broken(
            "§7 every call has its own attempt row",
            format!("{sent:?} does not count on from {last:?}"),
        );
    }
    // An entry may have come to name another attempt than the one that is known to have succeeded.
    let nothing = model.facts(entry.call).is_some_and(|facts| {
        let run = facts.attempt(entry.attempt);
        facts.successes.is_empty() && run.is_some_and(|a| a.not_applied)
    });
    if nothing && before == Some(EntryState::Pending) {
        return broken(
            "§6 Fail(NOT_APPLIED): pending becomes skipped",
            format!("{sent:?} was sent for an attempt that was not applied"),
        );
    }
    Ok(())
}

fn drained(step: Step<'_>, rollback: &RollbackRow, sent: &SentRow) -> Result<(), Violation> {
    let Step { seen, rows, .. } = step;
    let grant = rows.granted_from(from(rollback));
    if let Some(grant) = grant.filter(|e| seen.effect(e.call).is_some_and(|o| o.live_grant)) {
        return broken(
            "§7 nothing is undone while a live grant is in scope",
            format!("{sent:?} was sent beside {grant:?} (scope from {})", from(rollback)),
        );
    }
    let before = seen.rollbacks.iter().find(|o| o.id == rollback.id).map(|o| o.state);
    if rollback.state == RollbackState::Draining && before == Some(RollbackState::Draining) {
        return broken(
            "§7 drain, then walk",
            format!("{sent:?} was sent while the rollback drains: {rollback:?}"),
        );
    }
    Ok(())
}

/// Every higher entry in scope has reached its final state.
fn lifo(
    model: &Model,
    Step { seen, rows, .. }: Step<'_>,
    index: usize,
    from: Position,
    entry: &EntryRow,
) -> Result<(), Violation> {
    let above = |e: &&EntryRow| e.position > entry.position && e.position >= from;
    for old in seen.entries.iter().filter(above) {
        let later = rows.sent.iter().skip(index + 1).any(|s| s.undo_id == old.undo_id);
        let now = rows.entry(old.undo_id).unwrap_or(old);
        let done = is_final(model, seen, old) || !later && is_final(model, rows, now);
        if !done {
            return broken(
                "§7/§12 LIFO by position",
                format!("{entry:?} was called while {now:?} above it is not finished"),
            );
        }
    }
    Ok(())
}

fn is_final(model: &Model, rows: &Observed, entry: &EntryRow) -> bool {
    match entry.state {
        EntryState::Compensated | EntryState::Skipped => true,
        EntryState::Pending | EntryState::Running => false,
        EntryState::Failed => {
            model.config.on_dead_letter == OnDeadLetter::Continue
                || rows.letters.iter().any(|l| {
                    // Open point: on_unknown = dead_letter is taken as not stopping the walk.
                    l.undo_id == Some(entry.undo_id)
                        && matches!(l.reason.as_str(), "MISSING_RESULT" | "OUTCOME_UNKNOWN")
                })
        }
    }
}
