//! Dead letters as they are listed and shown.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use undolog_core::{json::shown_from, role::Rpc, state::EffectState};
use uuid::Uuid;

use super::{
    filter::{DeadLetterFilter, wanted},
    letter::{not_found, session_of},
    require_role,
};
use crate::{
    error::StepError,
    pool::Store,
    read::{
        DeadLetterView, EffectView, Page, Paging, UndoView,
        effects::EffectShown,
        page::{Bounds, Until, page_bytes, read_max, time_of},
        sessions::{DeadLetterShown, UndoShown},
    },
    registry::Asked,
    session::{self, LockedSession},
    sessions::{PlannedItem, Preview},
    step::Caller,
    tenant::Tenant,
    walk,
};

/// Calls that are shown of an entry, the newest first.
const ATTEMPTS_SHOWN_MAX: i64 = 100;
/// Bytes that are shown of an answer.
const EXCERPT_BYTES: i32 = 4096;

/// A dead letter as it is listed.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are those of the wire's DeadLetterItem")]
pub struct DeadLetterItem {
    pub dead_letter: DeadLetterView,
    pub tool_name: String,
    pub step_index: i32,
    pub position: i32,
    pub effect_state: String,
    pub session_state: String,
    /// Empty: it is about the effect itself.
    pub compensation_fn: String,
    pub last_error: Option<String>,
    /// How many calls were made.
    pub attempts: i64,
}

#[derive(Debug, FromRow)]
struct ItemShown {
    #[sqlx(flatten)]
    letter: DeadLetterShown,
    tool_name: String,
    step_index: i32,
    position: i32,
    effect_state: String,
    session_state: String,
    compensation_fn: Option<String>,
    last_error: Option<String>,
    last_error_raw: Option<Vec<u8>>,
    attempts: i64,
    matched: i64,
}

impl From<ItemShown> for DeadLetterItem {
    fn from(row: ItemShown) -> Self {
        let error_raw = row.last_error_raw;
        Self {
            dead_letter: row.letter.into(),
            tool_name: row.tool_name,
            step_index: row.step_index,
            position: row.position,
            effect_state: row.effect_state,
            session_state: row.session_state,
            compensation_fn: row.compensation_fn.unwrap_or_default(),
            last_error: row.last_error.map(|shown| shown_from(&shown, error_raw.as_deref())),
            attempts: row.attempts,
        }
    }
}

/// A call of a compensation.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are those of the wire's UndoAttempt")]
pub struct UndoAttemptView {
    pub undo_attempt_id: Uuid,
    pub round: i32,
    pub number: i32,
    /// `None`: it has not ended, or its worker is gone.
    pub outcome: Option<String>,
    pub status: Option<i32>,
    pub error: Option<String>,
    /// The first bytes of the answer.
    pub response: Vec<u8>,
    pub response_truncated: bool,
    pub method: String,
    /// Secrets stand as placeholders.
    pub url: String,
    pub started_at: DateTime<Utc>,
    pub finished_at: Option<DateTime<Utc>>,
    pub worker: String,
    pub result_known: bool,
}

#[derive(Debug, FromRow)]
struct AttemptShown {
    undo_attempt_id: Uuid,
    round: i32,
    number: i32,
    outcome: Option<String>,
    status: Option<i32>,
    error: Option<String>,
    error_raw: Option<Vec<u8>>,
    response: Option<Vec<u8>>,
    response_truncated: bool,
    method: String,
    url: String,
    started_at: DateTime<Utc>,
    finished_at: Option<DateTime<Utc>>,
    worker: String,
    result_known: bool,
}

impl From<AttemptShown> for UndoAttemptView {
    fn from(row: AttemptShown) -> Self {
        let error_raw = row.error_raw;
        Self {
            undo_attempt_id: row.undo_attempt_id,
            round: row.round,
            number: row.number,
            outcome: row.outcome,
            status: row.status,
            error: row.error.map(|shown| shown_from(&shown, error_raw.as_deref())),
            response: row.response.unwrap_or_default(),
            response_truncated: row.response_truncated,
            method: row.method,
            url: row.url,
            started_at: row.started_at,
            finished_at: row.finished_at,
            worker: row.worker,
            result_known: row.result_known,
        }
    }
}

/// A dead letter with everything that its operator needs to decide.
#[derive(Debug, Clone)]
pub struct DeadLetterDetail {
    /// The dead letter.
    pub item: DeadLetterItem,
    /// Its undo entry; `None`: it is about the effect itself.
    pub entry: Option<UndoView>,
    /// Its effect.
    pub effect: EffectView,
    /// The calls that were made, the newest first, as many as fit into a page, at most 100. The
    /// dead letter says how many there are.
    pub attempts: Vec<UndoAttemptView>,
    /// What a retry would send now; `None`: there is nothing to send.
    pub next_call: Option<PlannedItem>,
}

/// Dead letters, the newest first: the open ones, or the closed ones. Those of settled sessions
/// have left the list; they are found by their session or their id.
///
/// # Errors
/// The filter or the page is refused, or the database could not be reached.
pub async fn list_dead_letters(
    store: &Store,
    caller: &Caller,
    filter: &DeadLetterFilter,
    closed: bool,
    paging: &Paging,
) -> Result<Page<DeadLetterItem>, StepError> {
    require_role(caller, Rpc::ListDeadLetters)?;
    filter.check()?;
    let limit = paging.rows()?;
    let before = match paging.after::<(i64, Uuid)>("dead_letters")? {
        Some((micros, dead_letter_id)) => Some((time_of(micros)?, dead_letter_id)),
        None => None,
    };
    let bounds = Bounds::new(before);
    let mut tx = Tenant::begin(store, caller.org_id).await?;
    let until: Option<Until> = if filter.includes_settled() {
        None
    } else {
        sqlx::query_as(include_str!("../../sql/operate_dead_letters_until.sql"))
            .bind(caller.org_id)
            .bind(closed)
            .bind(i64::from(filter.older_than_seconds))
            .bind(bounds.before.0)
            .bind(bounds.before.1)
            .bind(read_max(1))
            .bind(filter.created_until)
            .fetch_optional(tx.conn())
            .await?
    };
    let bounds = bounds.until(until);
    let rows: Vec<ItemShown> = sqlx::query_as(include_str!("../../sql/operate_dead_letters.sql"))
        .bind(caller.org_id)
        .bind(filter.ids_param())
        .bind(filter.session_id)
        .bind(wanted(&filter.tool_name))
        .bind(wanted(&filter.compensation_fn))
        .bind(wanted(&filter.reason))
        .bind(i64::from(filter.older_than_seconds))
        .bind(filter.includes_settled())
        .bind(Some(closed))
        .bind(bounds.before.0)
        .bind(bounds.before.1)
        .bind(limit + 1)
        .bind(page_bytes())
        .bind(filter.created_until)
        .bind(bounds.until.0)
        .bind(bounds.until.1)
        .fetch_all(tx.conn())
        .await?;
    tx.commit().await?;
    let matched = rows.first().map_or(0, |row| row.matched);
    let items = rows.into_iter().map(DeadLetterItem::from).collect();
    let key = |item: &DeadLetterItem| {
        (item.dead_letter.created_at.timestamp_micros(), item.dead_letter.dead_letter_id)
    };
    Page::cut_at("dead_letters", items, limit, matched, key, until.map(Until::key))
}

/// Shows a dead letter.
///
/// # Errors
/// There is none of this id, or the database could not be reached.
pub async fn get_dead_letter(
    store: &Store,
    caller: &Caller,
    dead_letter_id: Uuid,
) -> Result<DeadLetterDetail, StepError> {
    require_role(caller, Rpc::GetDeadLetter)?;
    let mut asked = Asked::default();
    loop {
        let mut tx = Tenant::begin(store, caller.org_id).await?;
        let detail = read_detail(&mut tx, caller, dead_letter_id).await;
        // Nothing was written; the lock that the look at the next call needs goes as well.
        tx.rollback().await?;
        match detail {
            Err(StepError::Apart(work)) => asked.serve(work, store, caller.org_id).await?,
            detail => return detail,
        }
    }
}

async fn read_detail(
    tx: &mut Tenant,
    caller: &Caller,
    dead_letter_id: Uuid,
) -> Result<DeadLetterDetail, StepError> {
    let session_id = session_of(tx, dead_letter_id).await?;
    let session_id = session_id.ok_or_else(|| not_found(dead_letter_id))?;
    let session = LockedSession::lock(tx, session_id, caller).await?;
    let session = session.ok_or_else(|| not_found(dead_letter_id))?;
    session::plan_for_values(tx).await?;
    let item: DeadLetterItem = item(tx, caller.org_id, dead_letter_id).await?.into();
    let effect: Option<EffectShown> = sqlx::query_as(include_str!("../../sql/operate_effect.sql"))
        .bind(caller.org_id)
        .bind(session_id)
        .bind(session.row.started_at)
        .bind(item.dead_letter.effect_id)
        .bind(session.executed_until())
        .fetch_optional(tx.conn())
        .await?;
    let corrupt = || StepError::Corrupt(format!("dead letter {dead_letter_id}: no effect"));
    let effect = effect.ok_or_else(corrupt)?.view()?;
    let mut detail =
        DeadLetterDetail { item, entry: None, effect, attempts: Vec::new(), next_call: None };
    if let Some(undo_id) = detail.item.dead_letter.undo_id {
        detail.entry = Some(entry(tx, caller.org_id, undo_id).await?);
        detail.attempts = attempts(tx, caller.org_id, undo_id).await?;
        let preview = walk::preview(tx, &session, undo_id).await?;
        detail.next_call = preview.map(|preview| planned(&detail, preview)).transpose()?;
    }
    Ok(detail)
}

async fn item(tx: &mut Tenant, org_id: Uuid, dead_letter_id: Uuid) -> Result<ItemShown, StepError> {
    let bounds = Bounds::new(None);
    let row: Option<ItemShown> = sqlx::query_as(include_str!("../../sql/operate_dead_letters.sql"))
        .bind(org_id)
        .bind(Some(&[dead_letter_id][..]))
        .bind(None::<Uuid>)
        .bind(None::<&str>)
        .bind(None::<&str>)
        .bind(None::<&str>)
        .bind(0_i64)
        .bind(true)
        .bind(None::<bool>)
        .bind(bounds.before.0)
        .bind(bounds.before.1)
        .bind(1_i64)
        .bind(page_bytes())
        .bind(None::<DateTime<Utc>>)
        .bind(bounds.until.0)
        .bind(bounds.until.1)
        .fetch_optional(tx.conn())
        .await?;
    row.ok_or_else(|| not_found(dead_letter_id))
}

async fn entry(tx: &mut Tenant, org_id: Uuid, undo_id: Uuid) -> Result<UndoView, StepError> {
    let row: Option<UndoShown> = sqlx::query_as(include_str!("../../sql/operate_entry.sql"))
        .bind(org_id)
        .bind(undo_id)
        .fetch_optional(tx.conn())
        .await?;
    row.ok_or_else(|| StepError::Corrupt(format!("there is no undo entry {undo_id}")))?.view()
}

async fn attempts(
    tx: &mut Tenant,
    org_id: Uuid,
    undo_id: Uuid,
) -> Result<Vec<UndoAttemptView>, StepError> {
    let rows: Vec<AttemptShown> = sqlx::query_as(include_str!("../../sql/operate_attempts.sql"))
        .bind(org_id)
        .bind(undo_id)
        .bind(EXCERPT_BYTES)
        .bind(ATTEMPTS_SHOWN_MAX)
        .bind(page_bytes())
        .fetch_all(tx.conn())
        .await?;
    Ok(rows.into_iter().map(UndoAttemptView::from).collect())
}

fn planned(detail: &DeadLetterDetail, preview: Preview) -> Result<PlannedItem, StepError> {
    let (item, effect) = (&detail.item, &detail.effect);
    let state: EffectState = effect
        .state
        .parse()
        .map_err(|error: undolog_core::state::UnknownName| StepError::Corrupt(error.to_string()))?;
    let compensation = detail
        .entry
        .as_ref()
        .map(|entry| (entry.compensation_fn.clone(), entry.compensation_version.clone()));
    Ok(PlannedItem {
        effect_id: effect.effect_id,
        undo_id: item.dead_letter.undo_id,
        position: u32::try_from(item.position).unwrap_or_default(),
        step_index: u32::try_from(item.step_index).unwrap_or_default(),
        tool_name: item.tool_name.clone(),
        effect_state: state,
        compensation,
        preview: Some(preview),
    })
}
