//! How a report joins a rollback that has begun, or has ended.

use std::str::FromStr as _;

use serde_json::json;
use undolog_core::state::{
    DeadLetterReason, RollbackEvent, RollbackState, SessionEvent, SessionState,
};
use uuid::Uuid;

use crate::{
    dead_letters::{self, DeadLetterRow},
    effects::EffectRow,
    error::StepError,
    rollback::{self, RollbackRow},
    session::LockedSession,
    tenant::Tenant,
    undo::UndoRow,
};

/// The newest rollback whose scope holds the effect, whether it runs or has ended. Effects granted
/// after a partial rollback had ended are outside of it, whatever their position.
pub(crate) async fn covering(
    tx: &mut Tenant,
    session: &LockedSession,
    effect: &EffectRow,
) -> Result<Option<RollbackRow>, StepError> {
    let Some(position) = effect.position else { return Ok(None) };
    let org_id = tx.org_id();
    Ok(sqlx::query_as(&format!(
        "SELECT {} FROM undolog_rollbacks WHERE session_id = $1 AND org_id = $2 \
         AND state <> 'superseded' AND from_position <= $3 \
         AND (state IN ('draining', 'walking', 'halted') OR finished_at >= $4) \
         ORDER BY created_at DESC, rollback_id DESC LIMIT 1 FOR NO KEY UPDATE",
        rollback::COLUMNS
    ))
    .bind(session.id())
    .bind(org_id)
    .bind(position)
    .bind(effect.granted_at)
    .fetch_optional(tx.conn())
    .await?)
}

/// The open dead letters on the entry, or on the effect itself.
pub(crate) async fn letters(
    tx: &mut Tenant,
    effect_id: Uuid,
    entry: Option<&UndoRow>,
) -> Result<Vec<DeadLetterRow>, StepError> {
    let mut letters = dead_letters::open_about(tx, effect_id, None).await?;
    let undo_id = entry.map(|entry| entry.undo_id);
    letters.retain(|letter| letter.undo_id.is_none() || letter.undo_id == undo_id);
    Ok(letters)
}

/// The reason of the open dead letter; the entry's own comes first.
pub(crate) async fn dead_letter(
    tx: &mut Tenant,
    effect_id: Uuid,
    entry: Option<&UndoRow>,
) -> Result<Option<DeadLetterReason>, StepError> {
    let mut letters = letters(tx, effect_id, entry).await?;
    letters.sort_by_key(|letter| letter.undo_id.is_none());
    letters
        .first()
        .map(|letter| {
            DeadLetterReason::from_str(&letter.reason)
                .map_err(|error| StepError::Corrupt(error.to_string()))
        })
        .transpose()
}

/// One more committed irreversible effect of a rollback. A running one counts at its end.
pub(crate) async fn count_residue(
    tx: &mut Tenant,
    session: &mut LockedSession,
    rollback: Option<&mut RollbackRow>,
) -> Result<(), StepError> {
    let Some(rollback) = rollback else { return Ok(()) };
    if rollback.finished_at.is_some() {
        rollback.residue_count += 1;
        session.row.residue_count += 1;
        rollback::save(tx, rollback).await?;
    }
    Ok(())
}

/// The report makes the rollback due: it may have waited for it, or has new work from it.
pub(crate) async fn make_due(
    tx: &mut Tenant,
    session: &mut LockedSession,
    rollback: Option<&mut RollbackRow>,
    actor: &str,
) -> Result<(), StepError> {
    let Some(rollback) = rollback else { return Ok(()) };
    let has_ended = rollback.state()? == RollbackState::Compensated;
    if has_ended && !rollback.is_whole() {
        // A partial rollback gave the session back. It is taken again for the late entry; when it
        // was completed meanwhile, the entry waits on the stack.
        match session.state() {
            SessionState::Active | SessionState::AwaitingApproval => {
                let event = SessionEvent::PartialRollbackStarted;
                session.apply(event, actor, json!({"cause": "late_commit"}))?;
            }
            _ => return Ok(()),
        }
    }
    rollback::make_due(tx, session, rollback, actor).await
}

/// A new dead letter halts a session that had ended well.
pub(crate) async fn dead_lettered(
    tx: &mut Tenant,
    session: &mut LockedSession,
    rollback: Option<&mut RollbackRow>,
    actor: &str,
) -> Result<(), StepError> {
    if session.state() != SessionState::Compensated {
        return Ok(());
    }
    session.apply(SessionEvent::DeadLettered, actor, json!({}))?;
    if let Some(rollback) = rollback
        && rollback.state()? == RollbackState::Compensated
    {
        rollback.apply(session, RollbackEvent::DeadLettered, actor, json!({}))?;
        rollback::save(tx, rollback).await?;
    }
    Ok(())
}
