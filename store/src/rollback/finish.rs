//! The end of a rollback.

use serde_json::json;
use undolog_core::state::{RollbackEvent, SessionEvent};

use super::{RollbackRow, owed, save};
use crate::{error::StepError, session::LockedSession, tenant::Tenant};

/// Ends a rollback that has no open entry left: compensated (or given back) only without an open
/// dead letter in its scope, else halted. A partial rollback that has ended keeps its scope for
/// good. The session is the caller's to save.
pub async fn finish(
    tx: &mut Tenant,
    session: &mut LockedSession,
    rollback: &mut RollbackRow,
    actor: &str,
) -> Result<(), StepError> {
    report(tx, session, rollback).await?;
    rollback.finished_at = Some(session.t());
    let open = obstacles(tx, session, rollback).await?;
    let detail = json!({
        "residue": rollback.residue_count,
        "unverified": rollback.unverified_count,
        "dead_letters_open": open,
    });
    if open > 0 {
        rollback.apply(session, RollbackEvent::Halted, actor, detail.clone())?;
        session.apply(SessionEvent::WalkHalted, actor, detail)?;
    } else {
        rollback.apply(session, RollbackEvent::Compensated, actor, detail.clone())?;
        if rollback.is_whole() {
            session.apply(SessionEvent::Compensated, actor, detail)?;
        } else {
            rollback.until_position = Some(session.row.last_position);
            give_back(session, rollback, actor, detail)?;
            owed::pay(tx, session, rollback, 0, actor).await?;
        }
    }
    save(tx, rollback).await?;
    recount(tx, session).await
}

/// Gives the session back as the partial rollback had found it, or as a documented halt meanwhile
/// wants it.
fn give_back(
    session: &mut LockedSession,
    rollback: &RollbackRow,
    actor: &str,
    detail: serde_json::Value,
) -> Result<(), StepError> {
    let event = match rollback.returns_to.as_deref() {
        Some("completed") => SessionEvent::PartialRollbackDoneCompleted,
        Some("failed") => SessionEvent::PartialRollbackDoneFailed,
        Some("halted") => SessionEvent::PartialRollbackDoneHalted,
        _ if session.row.approvals_pending > 0 => SessionEvent::PartialRollbackDoneAwaiting,
        _ => SessionEvent::PartialRollbackDone,
    };
    session.apply(event, actor, detail)?;
    if session.state().is_live() {
        session.row.lease_renewed_at = session.row.lease_ms.map(|_| session.lease_from());
    }
    Ok(())
}

/// How many open dead letters keep a rollback from ending well: all of the session's for a whole
/// one, those of its scope for a partial one.
pub async fn obstacles(
    tx: &mut Tenant,
    session: &LockedSession,
    rollback: &RollbackRow,
) -> Result<i64, StepError> {
    let org_id = tx.org_id();
    Ok(sqlx::query_scalar(include_str!("../../sql/rollback_letters.sql"))
        .bind(session.id())
        .bind(org_id)
        .bind(rollback.is_whole())
        .bind(rollback.rollback_id)
        .bind(rollback.from_position)
        .fetch_one(tx.conn())
        .await?)
}

/// Counts what a rollback could not undo. The rollback is the caller's to save.
pub(crate) async fn report(
    tx: &mut Tenant,
    session: &LockedSession,
    rollback: &mut RollbackRow,
) -> Result<(), StepError> {
    let org_id = tx.org_id();
    let (residue, unverified): (i64, i64) =
        sqlx::query_as(include_str!("../../sql/rollback_report.sql"))
            .bind(session.id())
            .bind(org_id)
            .bind(session.row.started_at)
            .bind(rollback.from_position)
            .bind(rollback.until_position.unwrap_or(i32::MAX))
            .bind(session.executed_until())
            .fetch_one(tx.conn())
            .await?;
    rollback.residue_count = i32::try_from(residue).unwrap_or(i32::MAX);
    rollback.unverified_count = i32::try_from(unverified).unwrap_or(i32::MAX);
    Ok(())
}

/// Counts what all rollbacks of the session together could not undo; what several of them met is
/// counted once. Rollbacks and effects must be written before.
pub(crate) async fn recount(tx: &mut Tenant, session: &mut LockedSession) -> Result<(), StepError> {
    let org_id = tx.org_id();
    let (residue, unverified): (i64, i64) =
        sqlx::query_as(include_str!("../../sql/session_report.sql"))
            .bind(session.id())
            .bind(org_id)
            .bind(session.row.started_at)
            .bind(session.executed_until())
            .fetch_one(tx.conn())
            .await?;
    session.row.residue_count = i32::try_from(residue).unwrap_or(i32::MAX);
    session.row.unverified_count = i32::try_from(unverified).unwrap_or(i32::MAX);
    Ok(())
}
