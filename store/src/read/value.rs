//! One row by its id, whole: for whoever reads a field that an answer left out.

use undolog_core::reason::Reason;
use uuid::Uuid;

use super::{
    approvals::{ApprovalEventView, EventShown},
    effects::{EffectShown, EffectView},
    only_of,
    sessions::{DeadLetterShown, DeadLetterView, UndoShown, UndoView},
};
use crate::{
    effects::executed_between, error::StepError, pool::Store, session::LockedSession,
    sessions::Preview, step::Caller, tenant::Tenant, walk,
};

fn no_effect(effect_id: Uuid) -> StepError {
    StepError::refuse(Reason::EffectNotFound, format!("there is no effect {effect_id}"))
}

fn no_entry(undo_id: Uuid) -> StepError {
    StepError::refuse(Reason::EffectNotFound, format!("there is no undo entry {undo_id}"))
}

/// An effect.
///
/// # Errors
/// There is none of this id for this caller, or the database could not be reached.
pub async fn one_effect(
    store: &Store,
    caller: &Caller,
    effect_id: Uuid,
) -> Result<EffectView, StepError> {
    let (from, to) = executed_between(effect_id).ok_or_else(|| no_effect(effect_id))?;
    let mut tx = Tenant::begin(store, caller.org_id).await?;
    let row: Option<EffectShown> = sqlx::query_as(include_str!("../../sql/value_effect.sql"))
        .bind(caller.org_id)
        .bind(effect_id)
        .bind(from)
        .bind(to)
        .bind(only_of(caller))
        .fetch_optional(tx.conn())
        .await?;
    tx.commit().await?;
    row.ok_or_else(|| no_effect(effect_id))?.view()
}

/// An undo entry.
///
/// # Errors
/// There is none of this id for this caller, or the database could not be reached.
pub async fn one_undo_entry(
    store: &Store,
    caller: &Caller,
    undo_id: Uuid,
) -> Result<UndoView, StepError> {
    let mut tx = Tenant::begin(store, caller.org_id).await?;
    let row: Option<UndoShown> = sqlx::query_as(include_str!("../../sql/value_undo_entry.sql"))
        .bind(caller.org_id)
        .bind(undo_id)
        .bind(only_of(caller))
        .fetch_optional(tx.conn())
        .await?;
    tx.commit().await?;
    row.ok_or_else(|| no_entry(undo_id))?.view()
}

/// What would be sent now for an undo entry; `None`: nothing is left to do about it.
///
/// # Errors
/// There is no entry of this id for this caller, or the database could not be reached.
pub async fn next_call(
    store: &Store,
    caller: &Caller,
    undo_id: Uuid,
) -> Result<Option<Preview>, StepError> {
    let mut tx = Tenant::begin(store, caller.org_id).await?;
    let preview = preview(&mut tx, caller, undo_id).await;
    // Nothing was written; the lock that the look needs goes as well.
    tx.rollback().await?;
    preview
}

async fn preview(
    tx: &mut Tenant,
    caller: &Caller,
    undo_id: Uuid,
) -> Result<Option<Preview>, StepError> {
    let session_id: Option<Uuid> = sqlx::query_scalar(
        "SELECT session_id FROM undolog_undo_stack WHERE undo_id = $1 AND org_id = $2",
    )
    .bind(undo_id)
    .bind(caller.org_id)
    .fetch_optional(tx.conn())
    .await?;
    let session_id = session_id.ok_or_else(|| no_entry(undo_id))?;
    let session = LockedSession::lock(tx, session_id, caller).await?;
    walk::preview(tx, &session.ok_or_else(|| no_entry(undo_id))?, undo_id).await
}

/// A dead letter.
///
/// # Errors
/// There is none of this id for this caller, or the database could not be reached.
pub async fn one_dead_letter(
    store: &Store,
    caller: &Caller,
    dead_letter_id: Uuid,
) -> Result<DeadLetterView, StepError> {
    let mut tx = Tenant::begin(store, caller.org_id).await?;
    let row: Option<DeadLetterShown> =
        sqlx::query_as(include_str!("../../sql/value_dead_letter.sql"))
            .bind(caller.org_id)
            .bind(dead_letter_id)
            .bind(only_of(caller))
            .fetch_optional(tx.conn())
            .await?;
    tx.commit().await?;
    row.map(DeadLetterView::from).ok_or_else(|| {
        let why = format!("there is no dead letter {dead_letter_id}");
        StepError::refuse(Reason::DeadLetterNotFound, why)
    })
}

/// A decision about an approval request.
///
/// # Errors
/// There is none of this id for this caller, or the database could not be reached.
pub async fn one_approval_event(
    store: &Store,
    caller: &Caller,
    event_id: Uuid,
) -> Result<ApprovalEventView, StepError> {
    let mut tx = Tenant::begin(store, caller.org_id).await?;
    let row: Option<EventShown> =
        sqlx::query_as(include_str!("../../sql/value_approval_event.sql"))
            .bind(caller.org_id)
            .bind(event_id)
            .bind(only_of(caller))
            .fetch_optional(tx.conn())
            .await?;
    tx.commit().await?;
    row.map(|row| row.event).ok_or_else(|| {
        let why = format!("there is no decision {event_id}");
        StepError::refuse(Reason::ApprovalNotFound, why)
    })
}
