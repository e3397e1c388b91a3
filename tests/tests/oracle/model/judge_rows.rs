//! Rows that never change, rows of which there is one, and where rollbacks begin and end.

use std::collections::BTreeSet;

use super::command::Command;
use super::facts::{Facts, Model};
use super::judge::{Step, broken, from};
use super::observed::{EntryState, Observed, RollbackKind, RollbackRow, RollbackState};
use super::verdict::Violation;

pub(crate) fn check(model: &Model, step: Step<'_>) -> Result<(), Violation> {
    entries(model, step)?;
    effects(step)?;
    letters(model, step.rows)?;
    rollbacks(model, step)
}

fn entries(model: &Model, Step { seen, rows, .. }: Step<'_>) -> Result<(), Violation> {
    let mut positions = BTreeSet::new();
    for entry in &rows.entries {
        if !positions.insert(entry.position) {
            return broken(
                "§5 one counter: positions are unique",
                format!("two undo entries lie at position {}", entry.position),
            );
        }
        let Some(old) = seen.entry(entry.undo_id) else {
            if entry.position <= seen.highest() {
                return broken(
                    "§5/§13.1 a new entry lies on top",
                    format!("new entry {entry:?}; {} was already given", seen.highest()),
                );
            }
            continue;
        };
        let shared = model.facts(entry.call).is_some_and(Facts::shares_entry);
        let same = old.call == entry.call
            && old.position == entry.position
            && (shared || old.attempt == entry.attempt);
        if !same {
            return broken(
                "§5 an undo entry keeps its effect, attempt and position",
                format!("{old:?} became {entry:?}"),
            );
        }
        let over = matches!(old.state, EntryState::Compensated | EntryState::Skipped);
        if over && old.state != entry.state {
            return broken(
                "§6/§13.1 a finished entry is never reopened: late work is a new entry",
                format!("{old:?} became {entry:?}"),
            );
        }
    }
    match seen.entries.iter().find(|e| rows.entry(e.undo_id).is_none()) {
        Some(gone) => broken("§5 rows stay", format!("the entry {gone:?} is gone")),
        None => Ok(()),
    }
}

fn effects(Step { seen, rows, .. }: Step<'_>) -> Result<(), Violation> {
    for old in &seen.effects {
        let Some(new) = rows.effect(old.call) else {
            return broken("§5 rows stay", format!("the effect {old:?} is gone"));
        };
        if new.tier != old.tier || new.attempt < old.attempt {
            return broken(
                "§5 one row per effect: its tier stays, its attempt only grows",
                format!("{old:?} became {new:?}"),
            );
        }
        // A call that is asked again may wait without a position (open point).
        let again = new.position.is_none() && new.asked_position != old.asked_position;
        // And comes back to it when an earlier attempt's result stands for it.
        let again = again || (old.position.is_none() && !new.results.is_empty());
        let fresh = new.position.is_some_and(|p| p > seen.highest());
        if new.position != old.position && !again && !fresh {
            return broken(
                "§5 a position is taken from the counter and stays",
                format!("{old:?} became {new:?}; {} was already given", seen.highest()),
            );
        }
    }
    Ok(())
}

fn letters(model: &Model, rows: &Observed) -> Result<(), Violation> {
    let mut seen = BTreeSet::new();
    let mut by_reason = BTreeSet::new();
    for letter in &rows.letters {
        let own = letter.undo_id.is_none() || seen.insert(letter.undo_id);
        if !own || !by_reason.insert((letter.call, &letter.reason, letter.undo_id)) {
            return broken(
                "§12 exactly one open dead letter",
                format!("a second one is open beside {letter:?}"),
            );
        }
    }
    for (call, reason) in &model.letters_due {
        let open = rows.letters.iter().filter(|l| l.call == *call && l.reason == *reason).count();
        if open != 1 {
            return broken(
                "§6 Commit table: one dead letter",
                format!("call {call} has {open} open {reason} letters instead of one"),
            );
        }
    }
    Ok(())
}

fn rollbacks(model: &Model, step: Step<'_>) -> Result<(), Violation> {
    let Step { seen, rows, .. } = step;
    if rows.rollbacks.iter().filter(|r| r.live).count() > 1 {
        return broken("§7 one live rollback per session", format!("{:?}", rows.rollbacks));
    }
    if let Some(gone) = seen.rollbacks.iter().find(|r| rows.rollbacks.iter().all(|n| n.id != r.id))
    {
        return broken("§5 rows stay", format!("the rollback {gone:?} is gone"));
    }
    for row in &rows.rollbacks {
        let old = seen.rollbacks.iter().find(|r| r.id == row.id);
        started(model, rows, row, old)?;
        ended(step, row, old)?;
        reopened(model, step, row, old)?;
    }
    asked(model, step)
}

fn started(
    model: &Model,
    rows: &Observed,
    row: &RollbackRow,
    old: Option<&RollbackRow>,
) -> Result<(), Violation> {
    let wider = old.is_none_or(|o| from(row) < from(o));
    let revived = old.is_some_and(|o| !o.live) && row.live;
    if !wider && !revived {
        return Ok(());
    }
    let asked = model.scope.from(rows);
    if asked.is_none_or(|asked| from(row) < asked) {
        return broken(
            "§13.1 a rollback covers what somebody asked to undo",
            format!("{row:?} (before: {old:?}) begins below what was asked: {asked:?}"),
        );
    }
    Ok(())
}

fn ended(step: Step<'_>, row: &RollbackRow, old: Option<&RollbackRow>) -> Result<(), Violation> {
    let Step { seen, rows, .. } = step;
    if row.live != (row.state != RollbackState::Ended) {
        return broken("§5 a halted rollback stays the live one", format!("{row:?}"));
    }
    if row.live && row.until.is_some() && row.kind == RollbackKind::Partial {
        return broken(
            "§13.1 a live rollback has no upper end",
            format!("{row:?} is live and has an until_position"),
        );
    }
    if row.live || row.kind == RollbackKind::Whole {
        return Ok(());
    }
    if let Some(old) = old.filter(|o| !o.live) {
        return if old == row {
            Ok(())
        } else {
            broken(
                "§13.1 an ended partial rollback keeps its scope for good",
                format!("{old:?} became {row:?}"),
            )
        };
    }
    let highest = rows.highest();
    let last = rows.last_position.max(highest);
    if row.until.is_none_or(|until| until < seen.highest() || until > last) {
        return broken(
            "§13.1 until_position is the session's last position",
            format!("{row:?} ended; the last position is {last}"),
        );
    }
    let until = row.until.unwrap_or(last);
    let open = rows.entries.iter().find(|e| {
        (row.from..=until).contains(&e.position)
            && !matches!(e.state, EntryState::Compensated | EntryState::Skipped)
    });
    if let Some(open) = open {
        return broken(
            "§5/§7 a rollback ends when nothing in its scope is open",
            format!("{row:?} ended with {open:?}"),
        );
    }
    let both = rows.granted_from(row.from).filter(|e| {
        seen.effect(e.call).is_some_and(|old| old.live_grant && old.position == e.position)
    });
    match both {
        Some(grant) => broken(
            "§7 drain, then walk: no end beside a live grant in scope",
            format!("{row:?} ended with {grant:?}"),
        ),
        None => Ok(()),
    }
}

fn reopened(
    model: &Model,
    step: Step<'_>,
    row: &RollbackRow,
    old: Option<&RollbackRow>,
) -> Result<(), Violation> {
    let Some(old) = old else { return Ok(()) };
    if !old.live && row.live && row.kind == RollbackKind::Partial {
        return broken(
            "§13.1 an ended partial rollback is never reopened",
            format!("{old:?} became {row:?}"),
        );
    }
    // The walker may have ended the drain within the same step; nobody else does.
    let walker = matches!(step.last, Some(Command::Worker(_)));
    let undrained = !old.live || old.state == RollbackState::Halted && !model.drained;
    if undrained && row.state == RollbackState::Walking && !walker {
        return broken(
            "§13.1 a reopened rollback drains first",
            format!("{old:?} became {row:?} without draining"),
        );
    }
    Ok(())
}

/// A partial rollback that was accepted has a row, if there is anything in its scope.
fn asked(model: &Model, Step { seen, rows, .. }: Step<'_>) -> Result<(), Violation> {
    let Some(asked) = model.asked.filter(|asked| rows.highest() >= *asked) else {
        return Ok(());
    };
    let before = |row: &RollbackRow| seen.rollbacks.iter().any(|o| o.id == row.id && !o.live);
    if rows.rollbacks.iter().any(|r| !before(r) && from(r) <= asked) {
        return Ok(());
    }
    broken(
        "§7 Start is the Rollback's own transaction",
        format!("a rollback from {asked} was accepted and no rollback covers it"),
    )
}
