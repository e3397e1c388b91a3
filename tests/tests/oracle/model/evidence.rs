//! What a command and its answer make true.

use super::allowed_report::{first_above_step, first_entry_above_step, recorded};
use super::command::{Answer, Call, Command, FailEffect, LetterId, OnRejection, OnToolFailure};
use super::command::{Value, Verdict};
use super::facts::{Attempt, Decision, Facts, Model};
use super::observed::{EntryState, Observed, SessionState};
use super::scope::Ask;

pub(crate) fn record(model: &mut Model, rows: &Observed, command: &Command, answer: &Answer) {
    model.letters_due.clear();
    model.asked = None;
    let ok = *answer == Answer::Ok;
    match *command {
        Command::Intercept { call, step, tool, token } => match answer {
            Answer::Execute { attempt } => {
                let facts = model.calls.entry(call).or_insert_with(|| Facts::new(step, tool));
                facts.tool = tool;
                let run = facts.attempts.entry(*attempt).or_default();
                *run = Attempt { live: true, token, ..Attempt::default() };
                facts.resumable = false;
                if facts.decision == Decision::Approved {
                    facts.decision = Decision::Spent;
                }
            }
            Answer::AwaitingApproval => {
                let facts = model.calls.entry(call).or_insert_with(|| Facts::new(step, tool));
                facts.decision = Decision::Pending;
            }
            _ => {}
        },
        Command::Commit { call, attempt, value } => {
            commit(model, rows, call, attempt, value, answer);
        }
        Command::Fail { call, attempt, effect } if recorded(answer) => {
            fail(model, rows, call, attempt, effect, ok);
        }
        Command::Heartbeat { call, attempt } if ok => {
            let live = rows.session.is_live();
            if let Some(facts) = model.calls.get_mut(&call) {
                let newest = facts.named(attempt) == facts.newest();
                let lost = facts.attempt(facts.newest()).is_some_and(|a| a.lost);
                facts.resumable = live && newest && lost && facts.successes.is_empty();
            }
        }
        Command::RollbackPartial { to, .. } if ok => {
            model.asked = Some(to);
            model.scope.ask_from(to);
        }
        Command::RollbackToStep { step, .. } if ok => {
            // Open point: with no such step, the next position (nothing is there yet).
            let first = first_above_step(model, rows, step);
            let from = first.unwrap_or(rows.last_position + 1);
            model.asked = Some(from);
            // Open point: the place of an earlier attempt may count as its step's place.
            let earlier = first_entry_above_step(model, rows, step);
            model.scope.ask_from(earlier.map_or(from, |earlier| earlier.min(from)));
        }
        Command::RollbackWhole if ok => model.scope.whole = Ask::Must,
        _ if ok => accepted(model, rows, command),
        _ => {}
    }
}

/// A command that was answered OK.
fn accepted(model: &mut Model, rows: &Observed, command: &Command) {
    match *command {
        Command::Approve { call } => decide(model, call, Decision::Approved),
        Command::Reject { call } => {
            decide(model, call, Decision::Rejected);
            rejected(model, rows);
        }
        Command::ApprovalTimeout { call } => {
            if model.config.auto_approve {
                decide(model, call, Decision::Approved);
            } else {
                decide(model, call, Decision::TimedOut);
                rejected(model, rows);
            }
        }
        Command::Revoke { call } => decide(model, call, Decision::Revoked),
        Command::ApprovalLapses { call } => decide(model, call, Decision::Lapsed),
        Command::GrantLeaseExpires { call } => {
            for run in model.calls.get_mut(&call).into_iter().flat_map(|f| f.attempts.values_mut())
            {
                run.lost |= run.live;
                run.live = false;
            }
        }
        Command::SessionLeaseLost => {
            // Open point: whether a session's lease runs while its partial rollback is live.
            let ask = if rows.session.is_live() { Ask::Must } else { Ask::May };
            model.scope.whole = model.scope.whole.max(ask);
        }
        Command::Complete { .. } => model.completed = true,
        Command::FailSession { rollback } => {
            if rollback {
                model.scope.whole = Ask::Must;
            } else if rows.session.is_live() || rows.session == SessionState::Compensating {
                // Open point: what a partial rollback gives back then; an accepted Fail is not
                // lost.
                model.failed = true;
            }
        }
        Command::LateSuccess { undo_id } => {
            model.late_success.insert(undo_id);
        }
        Command::OperatorRetry { letter } => operator(model, rows, letter, Act::Retry),
        Command::OperatorSkip { letter } => operator(model, rows, letter, Act::Skip),
        Command::OperatorResolve { letter } => operator(model, rows, letter, Act::Resolve),
        Command::OperatorResolveUnknown { call, verdict } => {
            verdict_on(model, rows, call, verdict);
        }
        Command::SessionSettle => model.settled = true,
        _ => {}
    }
}

fn decide(model: &mut Model, call: Call, decision: Decision) {
    if let Some(facts) = model.calls.get_mut(&call) {
        // The same decision again changes nothing; exactly one wins (§8).
        let open = facts.decision == Decision::Pending
            || facts.decision == Decision::Approved
                && matches!(decision, Decision::Revoked | Decision::Lapsed);
        if open {
            facts.decision = decision;
        }
    }
}

fn rejected(model: &mut Model, rows: &Observed) {
    let moves = rows.session.is_live() || !model_over(model);
    match model.config.on_rejection {
        OnRejection::Halt if moves => model.halt_due = true,
        OnRejection::Rollback if rows.session.is_live() => model.scope.whole = Ask::Must,
        // Open point: on_rejection = rollback while a partial rollback is live.
        OnRejection::Rollback if moves => model.scope.whole = model.scope.whole.max(Ask::May),
        _ => {}
    }
}

fn model_over(model: &Model) -> bool {
    model.completed || model.failed || model.scope.whole != Ask::No
}

fn commit(
    model: &mut Model,
    rows: &Observed,
    call: Call,
    attempt: u32,
    value: Value,
    answer: &Answer,
) {
    let Some(facts) = model.calls.get_mut(&call) else {
        return;
    };
    let number = facts.named(attempt);
    if matches!(answer, Answer::Refused { reason, .. } if reason == "CONTRADICTED") {
        if !facts.contradicted && !facts.contradiction_settled {
            model.letters_due.push((call, "CONTRADICTED"));
        }
        facts.contradicted |= !facts.contradiction_settled;
        if let Some(run) = facts.attempts.get_mut(&number) {
            run.live = false;
        }
    } else if recorded(answer) && facts.contradiction_settled {
        // Open point 4: what follows from it was settled with the contradiction.
        if let Some(run) = facts.attempts.get_mut(&number) {
            run.live = false;
            run.success = Some(value);
        }
    } else if recorded(answer)
        && (!facts.contradicted || facts.attempts.get(&number).is_some_and(|run| run.live))
    {
        // The same contradicting report once more says nothing new; another attempt's is its own.
        success(model, rows, call, number, value);
    }
}

/// A success of one attempt became known.
fn success(model: &mut Model, rows: &Observed, call: Call, number: u32, value: Value) {
    let Some(facts) = model.calls.get_mut(&call) else {
        return;
    };
    let Some(run) = facts.attempts.get_mut(&number) else {
        return;
    };
    if run.success.is_some() {
        return;
    }
    run.success = Some(value);
    run.live = false;
    facts.successes.push((number, value));
    facts.resumable = false;
    if facts.irreversible() {
        model.closed_by_evidence |= rows.letters.iter().any(|l| l.call == call);
        return;
    }
    let repeatable = facts.tool.repeatable;
    let after = rows.highest();
    let Some(entry) = rows.top_entry(call, number) else {
        return;
    };
    let covered = rows.in_scope(entry.position) || model.scope.covers(entry.position, rows);
    let completed = rows.session == SessionState::Completed;
    let idle = matches!(rows.session, SessionState::Failed | SessionState::Halted)
        && rows.live_rollback().is_none();
    match entry.state {
        // Open point: a human had said that it is not to be undone.
        EntryState::Skipped if model.skipped_by_hand.contains(&entry.undo_id) => {
            model.scope.ask_late(call, after, Ask::May);
        }
        EntryState::Skipped if covered && completed => {
            model.letters_due.push((call, "LATE_COMMIT"));
        }
        // Open point: a session that failed or was halted meanwhile, without a live rollback.
        EntryState::Skipped if covered && idle => model.scope.ask_late(call, after, Ask::May),
        EntryState::Skipped => {
            if covered {
                model.scope.ask_late(call, after, Ask::Must);
            }
            model.entries_due.push((call, number, after));
        }
        EntryState::Compensated if !covered => {}
        EntryState::Compensated if repeatable && idle => {
            model.scope.ask_late(call, after, Ask::May);
        }
        EntryState::Compensated if repeatable && !completed => {
            model.scope.ask_late(call, after, Ask::Must);
        }
        EntryState::Compensated => model.letters_due.push((call, "LATE_COMMIT")),
        // In flight: what it becomes decides, and whether it was sent before the result.
        EntryState::Running => model.scope.ask_late(call, after, Ask::May),
        // A failed one waits for its live rollback, or is shown in its letter.
        EntryState::Failed | EntryState::Pending => {}
    }
}

fn fail(
    model: &mut Model,
    rows: &Observed,
    call: Call,
    attempt: u32,
    effect: FailEffect,
    ok: bool,
) {
    let Some(facts) = model.calls.get_mut(&call) else {
        return;
    };
    let number = facts.named(attempt);
    let stale = number != facts.newest();
    let known = !facts.successes.is_empty();
    let Some(run) = facts.attempts.get_mut(&number) else {
        return;
    };
    if stale || run.success.is_some() {
        return;
    }
    let again = run.failed || run.not_applied;
    run.live = false;
    match effect {
        FailEffect::MaybeApplied => run.failed = true,
        // §5: a failure that is known is changed by a Commit, a probe or an operator alone.
        FailEffect::NotApplied => run.not_applied |= !run.failed,
        FailEffect::Unknown => run.lost |= !again,
    }
    facts.resumable = false;
    if model.config.on_tool_failure == OnToolFailure::Continue {
        return;
    }
    // §6: once the entry is worked on, or later, a Fail is an event only.
    let undone = rows.top_entry(call, number).is_some_and(|entry| {
        matches!(entry.state, EntryState::Running | EntryState::Compensated | EntryState::Failed)
    });
    let ask = if again || known || undone || !ok || effect == FailEffect::Unknown {
        // Open points: a second Fail, a Fail beside a known success, a Fail that is "unknown".
        Ask::May
    } else {
        Ask::Must
    };
    let position = rows.effect(call).and_then(|e| e.position).unwrap_or(0);
    match rows.session {
        SessionState::Active | SessionState::AwaitingApproval => {
            model.scope.whole = model.scope.whole.max(ask);
        }
        // §13.1: a failure outside the live partial rollback's scope widens it to the whole.
        SessionState::Compensating if !model.scope.covers(position, rows) => {
            model.scope.whole = model.scope.whole.max(ask);
        }
        // Open point: §5 moves only a live session, yet the caller's rollback was due.
        SessionState::Halted if !model.scope.covers(position, rows) => {
            let live = rows.live_rollback().is_some();
            let ask = if live { ask } else { Ask::May };
            model.scope.whole = model.scope.whole.max(ask);
        }
        _ => {}
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    Retry,
    Skip,
    Resolve,
}

/// An operator acts on a dead letter.
fn operator(model: &mut Model, rows: &Observed, letter: LetterId, act: Act) {
    let Some(letter) = rows.letters.iter().find(|l| l.id == letter) else {
        return;
    };
    let call = letter.call;
    if let Some(facts) = model.calls.get_mut(&call) {
        facts.letter_closed = true;
        if facts.contradicted && letter.reason == "CONTRADICTED" {
            facts.contradicted = false;
            facts.contradiction_settled = true;
        }
    }
    let Some(undo_id) = letter.undo_id else {
        // Open point: a letter about a late commit may name the effect only.
        if act == Act::Retry && letter.reason == "LATE_COMMIT" {
            model.scope.ask_late(call, rows.highest(), Ask::Must);
        }
        return;
    };
    match act {
        Act::Skip => {
            model.skipped_by_hand.insert(undo_id);
        }
        Act::Resolve => {
            model.by_hand.insert(undo_id);
        }
        Act::Retry => {
            // A retried letter after the end is a new entry on top (§13.1). While its rollback is
            // live, the same entry is tried again, or a new one supersedes it.
            let ended = rows.live_rollback().is_none() || letter.reason == "LATE_COMMIT";
            let ask = if ended { Ask::Must } else { Ask::May };
            model.scope.ask_late(call, rows.highest(), ask);
            model.skipped_by_hand.insert(undo_id);
        }
    }
}

fn verdict_on(model: &mut Model, rows: &Observed, call: Call, verdict: Verdict) {
    let Some(facts) = model.calls.get_mut(&call) else {
        return;
    };
    facts.letter_closed = true;
    let newest = facts.newest();
    if facts.contradicted {
        facts.contradicted = false;
        facts.contradiction_settled = true;
    }
    match verdict {
        Verdict::Committed(value) => success(model, rows, call, newest, value),
        Verdict::NotApplied => {
            if let Some(run) = facts.attempts.get_mut(&newest) {
                run.not_applied = true;
                run.by_operator = true;
                run.live = false;
            }
        }
    }
}
