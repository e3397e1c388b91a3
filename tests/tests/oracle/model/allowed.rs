//! What a caller may hear: the Intercept table of §6 with §13.1 and §13.2.

use super::allowed_report::report;
use super::command::{Answer, Call, Command, Tier, Tool, Value};
use super::facts::{Decision, Facts, Model};
use super::observed::{EffectState, EntryRow, EntryState, Observed, RollbackKind, SessionState};
use super::verdict::Violation;

/// One pattern of an allowed answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// Execute under this attempt.
    Execute(u32),
    /// Replay of one of these values.
    Replay(Vec<Value>),
    /// AwaitingApproval.
    AwaitingApproval,
    /// A position at or above this one.
    AtLeast(i64),
    /// Accepted.
    Ok,
    /// This refusal.
    Refused(&'static str),
    /// This refusal, with RetryInfo.
    Retry(&'static str),
    /// A refusal whose reason the pages do not name; never INTERNAL.
    RefusedSomehow,
}

impl Allowed {
    /// Whether the answer fits.
    pub(crate) fn matches(&self, answer: &Answer) -> bool {
        match (self, answer) {
            (Allowed::Execute(n), Answer::Execute { attempt }) => n == attempt,
            (Allowed::Replay(values), Answer::Replay { value }) => values.contains(value),
            (Allowed::AwaitingApproval, Answer::AwaitingApproval) => true,
            (Allowed::AtLeast(low), Answer::At(position)) => low <= position,
            (Allowed::Ok, Answer::Ok) => true,
            (Allowed::Refused(want), Answer::Refused { reason, .. }) => want == reason,
            (Allowed::Retry(want), Answer::Refused { reason, retry }) => want == reason && *retry,
            (Allowed::RefusedSomehow, Answer::Refused { reason, .. }) => {
                !reason.is_empty() && reason != "INTERNAL"
            }
            _ => false,
        }
    }
}

/// The answers that the pages allow.
pub(crate) fn allowed(model: &Model, rows: &Observed, command: &Command) -> Vec<Allowed> {
    match command {
        Command::Intercept { call, step, tool, token } => {
            intercept(model, rows, *call, *step, *tool, *token)
        }
        other => report(model, rows, other),
    }
}

/// Names the rule that an answer breaks.
pub(crate) fn refuse(
    model: &Model,
    rows: &Observed,
    command: &Command,
    answer: &Answer,
    allowed: &[Allowed],
) -> Violation {
    let state = rows.session;
    let (call, facts) = match command {
        Command::Intercept { call, .. }
        | Command::Commit { call, .. }
        | Command::Fail { call, .. } => (Some(*call), model.facts(*call)),
        _ => (None, None),
    };
    let granted = matches!(answer, Answer::Execute { .. });
    let internal = matches!(answer, Answer::Refused { reason, .. } if reason == "INTERNAL");
    let rule = match facts {
        _ if internal => "§6 errors: a refusal has a reason, never INTERNAL",
        Some(f) if granted && f.contradicted => "§13.2 contradicted: nothing is granted",
        Some(f) if granted && !f.successes.is_empty() => "§12/§13.2 no grant after a commit",
        Some(f) if granted && f.live().is_some() => "§12 at most one live grant",
        Some(f) if granted && f.irreversible() => "§8/§12 no run without an unspent decision",
        _ if granted && rows.live_rollback().is_some() => "§7 no new grants during a rollback",
        Some(_) if granted => "§12 no grant while the outcome is unknown",
        _ => "§6 what a caller may hear",
    };
    let effect = call.and_then(|c| rows.effect(c)).map(|e| (e.state, e.attempt));
    Violation::new(
        rule,
        format!(
            "{command:?} heard {answer:?}; allowed are {allowed:?}; the session is {state:?}, \
             the effect (state, attempt) {effect:?}"
        ),
    )
}

/// The refusals of a session that takes no new work.
pub(crate) fn session_refusals(model: &Model, rows: &Observed) -> Vec<Allowed> {
    use Allowed::{Refused, Retry};
    let live = rows.live_rollback();
    let whole = live.is_some_and(|r| r.kind == RollbackKind::Whole);
    match rows.session {
        SessionState::Compensating if model.scope.only_late() && !whole => {
            vec![Retry("UNDO_RUNNING")]
        }
        // A caller's partial rollback that took in a late entry: both refusals fit (open point).
        SessionState::Compensating if !model.scope.late.is_empty() && !whole => {
            vec![Retry("UNDO_RUNNING"), Refused("SESSION_COMPENSATING")]
        }
        // Open point: a rollback over a late entry that is halted by a dead letter.
        SessionState::Halted if model.scope.only_late() && !whole => {
            vec![Retry("UNDO_RUNNING"), Refused("SESSION_HALTED")]
        }
        state => vec![Refused(state.refusal())],
    }
}

fn intercept(
    model: &Model,
    rows: &Observed,
    call: Call,
    step: i64,
    tool: Tool,
    token: u64,
) -> Vec<Allowed> {
    use Allowed::*;
    let session = rows.session;
    let (Some(facts), Some(effect)) = (model.facts(call), rows.effect(call)) else {
        return fresh(model, rows, call, step, tool);
    };
    let mut any = undone(rows, call, effect.state);
    if !any.is_empty() {
        return any;
    }
    let older = |e: &&EntryRow| e.call == call && e.attempt < effect.attempt;
    if rows.entries.iter().filter(older).any(|e| e.state == EntryState::Compensated) {
        // Open point: an older attempt was undone, the newest was not; either may be told.
        any.extend([Refused("ALREADY_UNDONE"), Retry("UNDO_RUNNING")]);
    }
    if facts.contradicted {
        any.push(RefusedSomehow);
        if !facts.successes.is_empty() {
            any.push(Replay(facts.replays()));
        }
        return any;
    }
    if facts.contradiction_settled {
        // Open point: the pages do not say which way a contradiction is settled.
        any.extend([RefusedSomehow, Execute(facts.newest() + 1), AwaitingApproval]);
        any.push(Replay(
            rows.effect(call).map_or(vec![], |e| e.results.iter().map(|(_, v)| *v).collect()),
        ));
        return any;
    }
    if !facts.successes.is_empty() {
        let replays = session.is_live() || session == SessionState::Completed;
        // Open point: a grant of a later attempt is still out (§6's row, or §13.2).
        if let Some((number, attempt)) = facts.live().filter(|_| session.is_live()) {
            let same = token != 0 && attempt.token == token;
            any.push(if same { Execute(number) } else { Retry("IN_PROGRESS") });
        }
        any.extend(if replays {
            vec![Replay(facts.replays())]
        } else {
            session_refusals(model, rows)
        });
        return any;
    }
    if let Some(reason) = rejection(facts, effect.state) {
        any.extend(reason);
        return any;
    }
    if !session.is_live() {
        let unknown =
            matches!(effect.state, EffectState::Unknown | EffectState::FailedMaybeApplied);
        if session == SessionState::Completed && unknown {
            any.push(Refused("OUTCOME_UNKNOWN"));
        } else {
            any.extend(session_refusals(model, rows));
        }
        return any;
    }
    any.extend(live_session(model, rows, call, facts, effect.state, token));
    any
}

/// The rows that say the same in every session state.
fn undone(rows: &Observed, call: Call, state: EffectState) -> Vec<Allowed> {
    let walking = rows.live_rollback().is_some();
    let entry = rows.entries.iter().filter(|e| e.call == call).count();
    match state {
        EffectState::Compensating => vec![Allowed::Refused("UNDO_RUNNING")],
        // A repeatable compensation runs again: undone and being undone at once (open point).
        EffectState::Compensated if walking && entry > 1 => {
            vec![Allowed::Refused("ALREADY_UNDONE"), Allowed::Refused("UNDO_RUNNING")]
        }
        EffectState::Compensated => vec![Allowed::Refused("ALREADY_UNDONE")],
        EffectState::CompensationFailed => vec![Allowed::Refused("UNDO_FAILED")],
        _ => vec![],
    }
}

fn rejection(facts: &Facts, state: EffectState) -> Option<Vec<Allowed>> {
    if state != EffectState::Rejected {
        return None;
    }
    Some(match facts.decision {
        Decision::TimedOut => vec![Allowed::Refused("APPROVAL_TIMED_OUT")],
        Decision::Lapsed => vec![Allowed::Refused("APPROVAL_LAPSED")],
        // Open point: the reason after a revocation is not named.
        Decision::Revoked => {
            vec![Allowed::Refused("APPROVAL_REJECTED"), Allowed::Refused("APPROVAL_REVOKED")]
        }
        // Open point: the reason after the start of a rollback is not named either.
        Decision::Voided => {
            vec![Allowed::Refused("APPROVAL_REJECTED"), Allowed::Refused("APPROVAL_VOIDED")]
        }
        _ => vec![Allowed::Refused("APPROVAL_REJECTED")],
    })
}

fn live_session(
    model: &Model,
    rows: &Observed,
    call: Call,
    facts: &Facts,
    state: EffectState,
    token: u64,
) -> Vec<Allowed> {
    use Allowed::*;
    let awaiting = rows.session == SessionState::AwaitingApproval;
    let again = if facts.irreversible() { AwaitingApproval } else { Execute(facts.newest() + 1) };
    if let Some((number, attempt)) = facts.live() {
        return if token != 0 && attempt.token == token {
            vec![Execute(number)]
        } else {
            vec![Retry("IN_PROGRESS")]
        };
    }
    match (facts.decision, state) {
        (Decision::Pending, _) => return vec![AwaitingApproval],
        (Decision::Approved, _) => return vec![Execute(facts.newest() + 1)],
        _ => {}
    }
    match state {
        // Open point: which of the two is said while another call also waits for people.
        EffectState::FailedNotApplied if model.step_taken(call, facts.step, rows) && awaiting => {
            vec![Refused("STEP_CONFLICT"), Retry("SESSION_AWAITING_APPROVAL")]
        }
        EffectState::FailedNotApplied if model.step_taken(call, facts.step, rows) => {
            vec![Refused("STEP_CONFLICT")]
        }
        // Open point: an irreversible call asked again while another waits.
        EffectState::FailedNotApplied if awaiting && facts.irreversible() => {
            vec![Retry("SESSION_AWAITING_APPROVAL"), again]
        }
        EffectState::FailedNotApplied if awaiting => vec![Retry("SESSION_AWAITING_APPROVAL")],
        EffectState::FailedNotApplied => vec![again],
        // Open point: the table gives an idempotent tool a new attempt also while awaiting.
        _ if facts.tool.idempotent && awaiting => vec![again, Retry("SESSION_AWAITING_APPROVAL")],
        _ if facts.tool.idempotent => vec![again],
        _ => vec![Refused("OUTCOME_UNKNOWN")],
    }
}

fn fresh(model: &Model, rows: &Observed, call: Call, step: i64, tool: Tool) -> Vec<Allowed> {
    use Allowed::*;
    match rows.session {
        SessionState::Active | SessionState::AwaitingApproval
            if model.step_taken(call, step, rows) =>
        {
            vec![Refused("STEP_CONFLICT")]
        }
        SessionState::Active if tool.tier == Tier::Compensable => vec![Execute(1)],
        SessionState::AwaitingApproval if tool.tier == Tier::Compensable => {
            vec![Retry("SESSION_AWAITING_APPROVAL")]
        }
        SessionState::Active | SessionState::AwaitingApproval => vec![AwaitingApproval],
        _ => session_refusals(model, rows),
    }
}
