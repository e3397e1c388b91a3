//! Judges the rows after a step; one file per kind of rule.

use super::allowed_report::whole_row;
use super::command::Command;
use super::facts::Model;
use super::observed::{Observed, RollbackKind, RollbackRow, RollbackState, SessionState};
use super::scope::Ask;
use super::verdict::Violation;
use super::{judge_effect, judge_must, judge_rows, judge_send, judge_session};

/// One step: the rows before it, after it, and the command between them.
#[derive(Clone, Copy)]
pub(crate) struct Step<'a> {
    pub(crate) seen: &'a Observed,
    pub(crate) rows: &'a Observed,
    pub(crate) last: Option<&'a Command>,
}

pub(crate) fn check(
    model: &mut Model,
    seen: &Observed,
    rows: &Observed,
    last: Option<&Command>,
    quiescent: bool,
) -> Result<(), Violation> {
    let step = Step { seen, rows, last };
    judge_rows::check(model, step)?;
    judge_send::check(model, step)?;
    judge_effect::check(model, step)?;
    judge_session::check(model, step)?;
    if quiescent {
        judge_must::check(model, rows)?;
    }
    if model.scope.whole == Ask::May {
        // The pages left it open; the rows now say which reading the system has.
        if whole_row(rows) {
            model.scope.whole = Ask::Must;
        } else if rows.session.is_live() || rows.session == SessionState::Completed {
            model.scope.whole = Ask::No;
        }
    }
    match rows.live_rollback().map(|r| r.state) {
        Some(RollbackState::Walking) => model.drained = true,
        Some(RollbackState::Draining) => model.drained = false,
        Some(RollbackState::Halted) => {}
        Some(RollbackState::Ended) | None => {
            model.drained = false;
            model.scope.end(rows);
        }
    }
    Ok(())
}

/// Where the scope of a rollback begins: a whole one has every position.
pub(crate) fn from(rollback: &RollbackRow) -> i64 {
    match rollback.kind {
        RollbackKind::Whole => i64::MIN,
        RollbackKind::Partial => rollback.from,
    }
}

/// Fails with this rule and text.
pub(crate) fn broken<T>(rule: &'static str, text: String) -> Result<T, Violation> {
    Err(Violation::new(rule, text))
}
