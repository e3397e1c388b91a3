//! The end of a rollback.

use serde_json::json;
use undolog_core::state::{RollbackEvent, SessionEvent};

use super::{RollbackRow, save};
use crate::{dead_letters, error::StepError, session::LockedSession, tenant::Tenant};

/// Ends a rollback that has no open entry left: compensated (or given back) only without an open
/// dead letter, else halted. The session is the caller's to save.
pub async fn finish(
    tx: &mut Tenant,
    session: &mut LockedSession,
    rollback: &mut RollbackRow,
    actor: &str,
) -> Result<(), StepError> {
    let org_id = tx.org_id();
    let (residue, unverified): (i64, i64) =
        sqlx::query_as(include_str!("../../sql/rollback_report.sql"))
            .bind(session.id())
            .bind(org_id)
            .bind(session.row.started_at)
            .bind(rollback.from_position)
            .bind(session.executed_until())
            .fetch_one(tx.conn())
            .await?;
    rollback.residue_count = i32::try_from(residue).unwrap_or(i32::MAX);
    rollback.unverified_count = i32::try_from(unverified).unwrap_or(i32::MAX);
    session.row.residue_count = rollback.residue_count;
    session.row.unverified_count = rollback.unverified_count;
    rollback.finished_at = Some(session.t());
    let open = dead_letters::open_count(tx, session.id()).await?;
    let detail = json!({
        "residue": residue, "unverified": unverified, "dead_letters_open": open,
    });
    if open > 0 {
        rollback.apply(session, RollbackEvent::Halted, actor, detail.clone())?;
        session.apply(SessionEvent::WalkHalted, actor, detail)?;
    } else {
        rollback.apply(session, RollbackEvent::Compensated, actor, detail.clone())?;
        let event = match (rollback.is_whole(), session.row.approvals_pending > 0) {
            (true, _) => SessionEvent::Compensated,
            (false, false) => SessionEvent::PartialRollbackDone,
            (false, true) => SessionEvent::PartialRollbackDoneAwaiting,
        };
        session.apply(event, actor, detail)?;
        if !rollback.is_whole() {
            session.row.lease_renewed_at = session.row.lease_ms.map(|_| session.t());
        }
    }
    save(tx, rollback).await
}
