//! A session with what belongs to it. Each list has pages of its own, and together they fit into
//! one message: of the undo stack the largest arguments are left out.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use uuid::Uuid;

use super::{
    only_of,
    page::{Page, Paging, refused, time_of},
    sessions::{
        DeadLetterShown, DeadLetterView, RollbackShown, RollbackView, SessionShown, SessionView,
        UndoShown, UndoView,
    },
};
use undolog_core::json::shown_from;

use crate::{error::StepError, pool::Store, session, step::Caller, tenant::Tenant};

/// Arguments that an undo stack shows: with all else, ordinary answers stay below gRPC's own 4 MiB.
const ARGS_BYTES_MAX: i64 = 3 * 512 * 1024;
/// Texts of one list: errors, reasons, notes.
const TEXT_BYTES_MAX: i64 = 512 * 1024;

/// Where the pages before ended; empty: from the start.
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "each is the token of the list of its name")]
pub struct DetailPages {
    pub undo: String,
    pub rollbacks: String,
    pub dead_letters: String,
}

/// A session with what belongs to it.
#[derive(Debug, Clone)]
pub struct SessionDetail {
    /// The session.
    pub session: SessionView,
    /// Its undo stack, highest position first.
    pub undo_stack: Page<UndoView>,
    /// Its rollbacks, newest first.
    pub rollbacks: Page<RollbackView>,
    /// Its dead letters, open ones first, then newest first.
    pub dead_letters: Page<DeadLetterView>,
}

#[derive(Debug, FromRow)]
struct LetterShown {
    #[sqlx(flatten)]
    letter: DeadLetterShown,
    matched: i64,
}

/// Shows a session.
pub async fn get_session(
    store: &Store,
    caller: &Caller,
    session_id: Uuid,
    pages: &DetailPages,
) -> Result<SessionDetail, StepError> {
    let mut tx = Tenant::begin(store, caller.org_id).await?;
    let detail = read_detail(&mut tx, caller, session_id, pages).await;
    tx.commit().await?;
    detail
}

async fn read_detail(
    tx: &mut Tenant,
    caller: &Caller,
    session_id: Uuid,
    pages: &DetailPages,
) -> Result<SessionDetail, StepError> {
    let row: Option<SessionShown> = sqlx::query_as(include_str!("../../sql/session_get.sql"))
        .bind(caller.org_id)
        .bind(session_id)
        .bind(only_of(caller))
        .fetch_optional(tx.conn())
        .await?;
    let row = row.ok_or_else(|| session::not_found(session_id))?;
    Ok(SessionDetail {
        session: row.view()?,
        undo_stack: undo_stack(tx, session_id, &pages.undo).await?,
        rollbacks: rollbacks(tx, session_id, &pages.rollbacks).await?,
        dead_letters: dead_letters(tx, session_id, &pages.dead_letters).await?,
    })
}

/// The key of a token of this list, if it is one of this session.
fn after<K: serde::de::DeserializeOwned>(
    list: &str,
    session_id: Uuid,
    token: &str,
) -> Result<Option<K>, StepError> {
    let paging = Paging { size: 0, token: token.to_owned() };
    match paging.after::<(Uuid, K)>(list)? {
        Some((of, _)) if of != session_id => Err(refused()),
        found => Ok(found.map(|(_, key)| key)),
    }
}

/// As many rows as a page may have.
fn limit() -> i64 {
    i64::from(undolog_core::limits::PAGE_MAX)
}

async fn undo_stack(
    tx: &mut Tenant,
    session_id: Uuid,
    token: &str,
) -> Result<Page<UndoView>, StepError> {
    let below = after::<i32>("undo_stack", session_id, token)?;
    let args_bytes = if crate::guard!("read.args_left_out") { ARGS_BYTES_MAX } else { i64::MAX };
    let org_id = tx.org_id();
    let rows: Vec<UndoShown> = sqlx::query_as(include_str!("../../sql/session_undo.sql"))
        .bind(org_id)
        .bind(session_id)
        .bind(below)
        .bind(limit() + 1)
        .bind(TEXT_BYTES_MAX)
        .bind(args_bytes)
        .fetch_all(tx.conn())
        .await?;
    let matched = rows.first().map_or(0, |row| row.matched);
    let views = rows.into_iter().map(UndoShown::view).collect::<Result<Vec<_>, _>>()?;
    Page::cut("undo_stack", views, limit(), matched, |view| (session_id, view.position))
}

async fn rollbacks(
    tx: &mut Tenant,
    session_id: Uuid,
    token: &str,
) -> Result<Page<RollbackView>, StepError> {
    let (micros, rollback_id) = after::<(i64, Uuid)>("rollbacks", session_id, token)?.unzip();
    let before = micros.map(time_of).transpose()?;
    let org_id = tx.org_id();
    let rows: Vec<RollbackShown> = sqlx::query_as(include_str!("../../sql/session_rollbacks.sql"))
        .bind(org_id)
        .bind(session_id)
        .bind(before)
        .bind(rollback_id)
        .bind(limit() + 1)
        .bind(TEXT_BYTES_MAX)
        .fetch_all(tx.conn())
        .await?;
    let matched = rows.first().map_or(0, |row| row.matched);
    let views = rows
        .into_iter()
        .map(|row| RollbackView {
            reason: shown_from(&row.rollback.reason, row.reason_raw.as_deref()),
            ..row.rollback
        })
        .collect();
    Page::cut("rollbacks", views, limit(), matched, |view: &RollbackView| {
        (session_id, (view.created_at.timestamp_micros(), view.rollback_id))
    })
}

async fn dead_letters(
    tx: &mut Tenant,
    session_id: Uuid,
    token: &str,
) -> Result<Page<DeadLetterView>, StepError> {
    let key = after::<(bool, i64, Uuid)>("session_dead_letters", session_id, token)?;
    let before: Option<DateTime<Utc>> = key.map(|(_, micros, _)| time_of(micros)).transpose()?;
    let org_id = tx.org_id();
    let rows: Vec<LetterShown> = sqlx::query_as(include_str!("../../sql/session_dead_letters.sql"))
        .bind(org_id)
        .bind(session_id)
        .bind(key.map(|(is_closed, _, _)| is_closed))
        .bind(before)
        .bind(key.map(|(_, _, id)| id))
        .bind(limit() + 1)
        .bind(TEXT_BYTES_MAX)
        .fetch_all(tx.conn())
        .await?;
    let matched = rows.first().map_or(0, |row| row.matched);
    let views = rows.into_iter().map(|row| row.letter.into()).collect();
    Page::cut("session_dead_letters", views, limit(), matched, |view: &DeadLetterView| {
        let at = view.created_at.timestamp_micros();
        (session_id, (view.closed_at.is_some(), at, view.dead_letter_id))
    })
}
