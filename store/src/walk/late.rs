//! A report that comes when its sender holds the rollback no more, or its entry has moved on.

use serde_json::json;
use undolog_core::{
    retry::CallOutcome,
    state::{RollbackState, SkipReason, UndoEvent, UndoState},
};

use super::{
    ACTOR, Outcome, Report,
    attempt::{self, Completed},
    settle,
};
use crate::{
    effects,
    error::StepError,
    rollback,
    session::LockedSession,
    tenant::Tenant,
    undo::{self, UndoRow},
};

/// Records the report of a holder that lost its claim.
pub(super) async fn record(
    tx: &mut Tenant,
    session: &mut LockedSession,
    report: &Report,
) -> Result<(), StepError> {
    let Some(completed) = attempt::complete(tx, session, report).await? else { return Ok(()) };
    let entry = settle::load(tx, completed.undo_id).await?;
    settle(tx, session, report, &completed, entry).await
}

/// A success makes the rollback due, also when it is halted; a counted failure is counted.
pub(super) async fn settle(
    tx: &mut Tenant,
    session: &mut LockedSession,
    report: &Report,
    completed: &Completed,
    mut entry: UndoRow,
) -> Result<(), StepError> {
    let state = entry.state()?;
    if report.outcome != Outcome::Ended(CallOutcome::Done) {
        return count(tx, session, report, completed, entry).await;
    }
    if state == UndoState::Compensated || !crate::guard!("walk.late_success") {
        return Ok(());
    }
    if matches!(state, UndoState::Failed | UndoState::Skipped) {
        let mut effect = effects::require(tx, session, entry.effect_id).await?;
        settle::compensated(tx, session, &mut entry, &mut effect, UndoEvent::LateSuccess).await?;
        drop_successor(tx, session, &entry).await?;
    }
    // An open entry is settled by the next claim, which finds the success.
    let Some(mut live) = rollback::live(tx, session).await? else { return Ok(()) };
    if live.state()? == RollbackState::Halted && session.row.settled_at.is_some() {
        return Ok(());
    }
    rollback::make_due(tx, session, &mut live, super::LATE_SUCCESS).await
}

/// An operator had replaced the entry by a new one: it has nothing to do any more, unless its call
/// has begun.
async fn drop_successor(
    tx: &mut Tenant,
    session: &mut LockedSession,
    entry: &UndoRow,
) -> Result<(), StepError> {
    let Some(undo_id) = entry.superseded_by else { return Ok(()) };
    let mut next = settle::load(tx, undo_id).await?;
    if next.state()? == UndoState::Pending && crate::guard!("walk.successor") {
        next.skip(session, SkipReason::Superseded, super::LATE_SUCCESS)?;
        next.superseded_by = Some(entry.undo_id);
        undo::save(tx, &next).await?;
    }
    Ok(())
}

/// A failure that nobody had taken for an interruption yet counts like any other.
async fn count(
    tx: &mut Tenant,
    session: &mut LockedSession,
    report: &Report,
    completed: &Completed,
    mut entry: UndoRow,
) -> Result<(), StepError> {
    let counts = report.outcome == Outcome::Ended(CallOutcome::Retry)
        && completed.before.is_none()
        && entry.state()? == UndoState::Running
        && entry.round == completed.round;
    if !counts {
        return Ok(());
    }
    entry.interruptions = 0;
    entry.retry_count = entry.retry_count.saturating_add(1);
    settle::note_error(&mut entry, report);
    entry.apply(session, UndoEvent::AttemptFailed, ACTOR, json!({"late": true}))?;
    undo::save(tx, &entry).await
}
