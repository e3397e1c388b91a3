//! How a report joins a rollback that has begun, or has ended.

use std::str::FromStr as _;

use serde_json::json;
use undolog_core::state::{
    DeadLetterReason, RollbackEvent, RollbackState, SessionEvent, SessionState,
};
use uuid::Uuid;

use crate::{
    dead_letters::{self, DeadLetterRow},
    error::StepError,
    rollback::{self, RollbackRow},
    session::LockedSession,
    tenant::Tenant,
    undo::UndoRow,
};

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
        rollback::report(tx, session, rollback).await?;
        rollback::save(tx, rollback).await?;
        rollback::recount(tx, session).await?;
    }
    Ok(())
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
        && rollback.is_whole()
    {
        rollback.apply(session, RollbackEvent::DeadLettered, actor, json!({}))?;
        rollback::save(tx, rollback).await?;
    }
    Ok(())
}
