//! What a caller may hear: Commit, Fail, the session's verbs, the operator's verbs.

use super::allowed::{Allowed, session_refusals};
use super::command::{Answer, Call, Command, FailEffect, Position, Tier, Value};
use super::facts::{Decision, Facts, Model};
use super::observed::{EffectState, EntryRow, Observed, RollbackKind, SessionState};

/// The reasons with which evidence is recorded all the same ("the caller hears `SESSION_<STATE>`
/// where it matters"). Open point: which one, and for which effects.
const HEARD_AND_RECORDED: [&str; 9] = [
    "SESSION_COMPLETED",
    "SESSION_FAILED",
    "SESSION_COMPENSATING",
    "SESSION_COMPENSATED",
    "SESSION_HALTED",
    "UNDO_RUNNING",
    "ALREADY_UNDONE",
    "UNDO_FAILED",
    "LATE_COMMIT",
];

/// Whether a Commit or Fail with this answer was recorded as evidence.
pub(crate) fn recorded(answer: &Answer) -> bool {
    match answer {
        Answer::Ok => true,
        Answer::Refused { reason, .. } => HEARD_AND_RECORDED.contains(&reason.as_str()),
        _ => false,
    }
}

pub(crate) fn report(model: &Model, rows: &Observed, command: &Command) -> Vec<Allowed> {
    use Allowed::*;
    match *command {
        Command::Commit { call, attempt, value } => commit(model, rows, call, attempt, value),
        Command::Fail { call, attempt, effect } => fail(model, rows, call, attempt, effect),
        Command::Savepoint if rows.session.is_live() => vec![AtLeast(rows.highest() + 1)],
        Command::Savepoint => session_refusals(model, rows),
        Command::RollbackPartial { to, allow_residue } => partial(rows, to, allow_residue),
        Command::RollbackToStep { step, allow_residue } => {
            let Some(from) = first_above_step(model, rows, step) else {
                return vec![Ok, RefusedSomehow];
            };
            let mut answers = partial(rows, from, allow_residue);
            if !answers.contains(&RefusedSomehow) && lower_step_above(model, rows, step, from) {
                answers.push(RefusedSomehow);
            }
            // Open point: the place of an earlier attempt may count as its step's place.
            if let Some(earlier) = first_entry_above_step(model, rows, step).filter(|e| *e < from) {
                answers.extend(partial(rows, earlier, allow_residue));
                if lower_step_above(model, rows, step, earlier) {
                    answers.push(RefusedSomehow);
                }
            }
            answers
        }
        Command::RollbackWhole if rows.session.is_live() => vec![Ok],
        Command::RollbackWhole => vec![Ok, RefusedSomehow],
        // Open point: an approval given in a session that takes no more calls.
        Command::Approve { call } if !rows.session.is_live() => {
            [decide(model, call), session_refusals(model, rows)].concat()
        }
        Command::Approve { call } | Command::Reject { call } => decide(model, call),
        Command::Complete { accept_unknown } => complete(model, rows, accept_unknown),
        Command::FailSession { .. } if rows.session.is_live() => vec![Ok],
        Command::SessionSettle if rows.session == SessionState::Halted => vec![Ok, RefusedSomehow],
        Command::OperatorRetry { letter }
        | Command::OperatorSkip { letter }
        | Command::OperatorResolve { letter }
            if !rows.letters.iter().any(|l| l.id == letter) =>
        {
            vec![RefusedSomehow]
        }
        Command::OperatorResolveUnknown { call, .. } => match rows.effect(call).map(|e| e.state) {
            Some(EffectState::Unknown | EffectState::FailedMaybeApplied) => {
                vec![Ok, RefusedSomehow]
            }
            // Open point: an entry that the walk works on, or a contradiction, may take one too.
            Some(_) => vec![Ok, RefusedSomehow],
            None => vec![RefusedSomehow],
        },
        // The driver's own doings, and what the pages do not bind to an answer.
        _ => vec![Ok, RefusedSomehow],
    }
}

fn not_live_answers(rows: &Observed) -> Vec<Allowed> {
    // Evidence about a call that a rollback touched may be answered so in an active session too.
    if rows.session.is_live() && rows.rollbacks.is_empty() {
        return vec![];
    }
    HEARD_AND_RECORDED.iter().map(|reason| Allowed::Refused(reason)).collect()
}

fn commit(model: &Model, rows: &Observed, call: Call, attempt: u32, value: Value) -> Vec<Allowed> {
    use Allowed::*;
    let Some(facts) = model.facts(call) else {
        return vec![RefusedSomehow];
    };
    let number = facts.named(attempt);
    let Some(run) = facts.attempt(number) else {
        return vec![RefusedSomehow];
    };
    if run.by_operator && run.success.is_none() {
        return if facts.contradicted {
            // Open point: the contradicting report is kept, and another value conflicts with it.
            vec![Refused("CONTRADICTED"), Ok, Refused("RESULT_CONFLICT")]
        } else if facts.contradiction_settled {
            vec![Refused("CONTRADICTED"), Ok, RefusedSomehow]
        } else {
            vec![Refused("CONTRADICTED")]
        };
    }
    if let Some(stored) = run.success {
        return if stored == value {
            [vec![Ok], not_live_answers(rows)].concat()
        } else {
            vec![Refused("RESULT_CONFLICT")]
        };
    }
    let mut answers = vec![Ok];
    if facts.attempts.values().any(|a| a.by_operator) {
        // Open point: the verdict was about another attempt of the same effect.
        answers.push(Refused("CONTRADICTED"));
    }
    if (run.failed || run.not_applied) && !facts.successes.is_empty() {
        // Open point: another attempt's result stands for the call.
        answers.push(Refused("RESULT_CONFLICT"));
    }
    answers.extend(not_live_answers(rows));
    answers
}

fn fail(
    model: &Model,
    rows: &Observed,
    call: Call,
    attempt: u32,
    effect: FailEffect,
) -> Vec<Allowed> {
    use Allowed::*;
    let Some(facts) = model.facts(call) else {
        return vec![RefusedSomehow];
    };
    let number = facts.named(attempt);
    let Some(run) = facts.attempt(number) else {
        return vec![RefusedSomehow];
    };
    if run.success.is_some() && number == facts.newest() {
        // ALREADY_EXISTS; the reason is not named.
        return vec![RefusedSomehow];
    }
    let again = run.failed || run.not_applied;
    let stale = number < facts.newest() || !facts.successes.is_empty();
    if again || stale || effect == FailEffect::Unknown {
        return vec![Ok, RefusedSomehow];
    }
    [vec![Ok], not_live_answers(rows)].concat()
}

/// Committed irreversible effects at or above a position.
fn residue_from(rows: &Observed, from: Position) -> bool {
    rows.effects.iter().any(|e| {
        e.asked_position.is_some()
            && e.state == EffectState::Committed
            && e.position.is_some_and(|p| p >= from)
    })
}

/// Irreversible calls at or above a position that run now, and can still commit.
fn may_be_residue(rows: &Observed, from: Position) -> bool {
    rows.effects.iter().any(|e| {
        e.tier == Tier::Irreversible && e.live_grant && e.position.is_some_and(|p| p >= from)
    })
}

fn partial(rows: &Observed, from: Position, allow_residue: bool) -> Vec<Allowed> {
    use Allowed::*;
    let residue = residue_from(rows, from) && !allow_residue;
    if !rows.session.is_live() {
        return vec![Ok, RefusedSomehow];
    }
    if residue {
        return vec![Refused("RESIDUE")];
    }
    if may_be_residue(rows, from) && !allow_residue {
        // Open point: what becomes residue in the drain was not asked for.
        return vec![Ok, Refused("RESIDUE")];
    }
    if from > rows.last_position + 1 {
        // Open point: a savepoint that was never given.
        return vec![Ok, RefusedSomehow];
    }
    vec![Ok]
}

/// `to_step N` is the first position whose step is above N.
pub(crate) fn first_above_step(model: &Model, rows: &Observed, step: i64) -> Option<Position> {
    positions(model, rows).filter(|(s, _)| *s > step).map(|(_, p)| p).min()
}

/// The same by entries, those of earlier attempts included.
pub(crate) fn first_entry_above_step(
    model: &Model,
    rows: &Observed,
    step: i64,
) -> Option<Position> {
    let above = |e: &&EntryRow| model.facts(e.call).is_some_and(|f| f.step > step);
    rows.entries.iter().filter(above).map(|e| e.position).min()
}

/// Refused if an effect of a step ≤ N lies above.
fn lower_step_above(model: &Model, rows: &Observed, step: i64, from: Position) -> bool {
    positions(model, rows).any(|(s, p)| s <= step && p >= from)
}

fn positions<'a>(
    model: &'a Model,
    rows: &'a Observed,
) -> impl Iterator<Item = (i64, Position)> + 'a {
    rows.effects.iter().filter_map(|e| {
        let step = model.facts(e.call)?.step;
        // A call that only asked has a place as long as its approval may still be voided.
        let asks = matches!(e.state, EffectState::Pending | EffectState::Approved);
        e.position.or(e.asked_position.filter(|_| asks)).map(|p| (step, p))
    })
}

fn decide(model: &Model, call: Call) -> Vec<Allowed> {
    match model.facts(call).map(|f| f.decision) {
        Some(Decision::Pending) => vec![Allowed::Ok],
        Some(Decision::None) | None => vec![Allowed::RefusedSomehow],
        // Losers hear the winner; the same decision again may be answered OK (open point).
        Some(_) => vec![
            Allowed::Refused("APPROVAL_ALREADY_RESOLVED"),
            Allowed::Ok,
            Allowed::RefusedSomehow,
        ],
    }
}

fn complete(model: &Model, rows: &Observed, accept_unknown: bool) -> Vec<Allowed> {
    use Allowed::*;
    match rows.session {
        SessionState::Active | SessionState::AwaitingApproval => {}
        SessionState::Completed => return vec![Ok, RefusedSomehow],
        _ => {
            return [session_refusals(model, rows), vec![Refused("SESSION_COMPENSATING")]].concat();
        }
    }
    let open = rows.effects.iter().any(|e| is_open(model.facts(e.call), e.state, accept_unknown));
    // Open point: a contradiction, or an open letter of an ended partial rollback.
    let disputed = model.calls.values().any(|f| f.contradicted) || !rows.letters.is_empty();
    match (open, disputed) {
        (true, _) => vec![Refused("EFFECTS_OPEN")],
        (false, true) => vec![Ok, Refused("EFFECTS_OPEN")],
        (false, false) => vec![Ok],
    }
}

fn is_open(facts: Option<&Facts>, state: EffectState, accept_unknown: bool) -> bool {
    // A stored success of any attempt is the call's result (§13.2); the row may lag behind.
    if facts.is_some_and(|f| !f.successes.is_empty() && f.live().is_none()) {
        return false;
    }
    match state {
        EffectState::Pending | EffectState::Approved | EffectState::Executing => true,
        EffectState::Unknown => !accept_unknown,
        _ => false,
    }
}

/// Whether a whole rollback has a row.
pub(crate) fn whole_row(rows: &Observed) -> bool {
    rows.rollbacks.iter().any(|r| r.kind == RollbackKind::Whole)
}
