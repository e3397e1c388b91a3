//! Entries that have to wait for the end of a rollback of other calls. A new entry lies on top of
//! the stack, and the scope of a live rollback reaches up to there: what is not to be undone by it
//! is put on the stack after it.

use uuid::Uuid;

use super::{RollbackRow, save};
use crate::{
    error::StepError,
    session::LockedSession,
    tenant::Tenant,
    undo::{self, UndoRow},
};

/// A skipped entry whose call happened after all gets its new entry when the live rollback, which
/// does not cover it, has ended.
pub(crate) async fn owe(
    tx: &mut Tenant,
    live: &mut RollbackRow,
    entry: &UndoRow,
) -> Result<(), StepError> {
    mark(tx, entry.undo_id, true).await?;
    live.owes_entries = true;
    save(tx, live).await
}

/// Makes the owed entries of calls at or above a position: those that a wider scope has come to
/// cover, and all of them at the rollback's end. The rollback is the caller's to save.
pub(super) async fn pay(
    tx: &mut Tenant,
    session: &mut LockedSession,
    rollback: &mut RollbackRow,
    from_position: i32,
    actor: &str,
) -> Result<(), StepError> {
    if !rollback.owes_entries {
        return Ok(());
    }
    let (due, later): (Vec<_>, Vec<_>) = owed(tx, session)
        .await?
        .into_iter()
        .partition(|entry| entry.stack_position >= from_position);
    rollback.owes_entries = !later.is_empty();
    for old in due {
        mark(tx, old.undo_id, false).await?;
        let entry = old.again_on_top(session, Uuid::now_v7());
        undo::insert(tx, session, &entry, actor).await?;
    }
    Ok(())
}

async fn owed(tx: &mut Tenant, session: &LockedSession) -> Result<Vec<UndoRow>, StepError> {
    let org_id = tx.org_id();
    Ok(sqlx::query_as(&format!(
        "SELECT {} FROM undolog_undo_stack WHERE session_id = $1 AND org_id = $2 AND owes_entry \
         ORDER BY stack_position",
        undo::COLUMNS
    ))
    .bind(session.id())
    .bind(org_id)
    .fetch_all(tx.conn())
    .await?)
}

async fn mark(tx: &mut Tenant, undo_id: Uuid, owes: bool) -> Result<(), StepError> {
    let org_id = tx.org_id();
    let done = sqlx::query(
        "UPDATE undolog_undo_stack SET owes_entry = $3 WHERE undo_id = $1 AND org_id = $2",
    )
    .bind(undo_id)
    .bind(org_id)
    .bind(owes)
    .execute(tx.conn())
    .await?;
    crate::session::one_row(done.rows_affected(), "owed undo entry")
}
