//! The effects of a session, as they are listed.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use undolog_core::json::shown_from;
use uuid::Uuid;

use super::{
    only_of,
    page::{Page, Paging, page_bytes},
};
use crate::{error::StepError, payload, pool::Store, session, step::Caller, tenant::Tenant};

/// An effect as it is listed.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are those of the wire's Effect")]
pub struct EffectView {
    pub effect_id: Uuid,
    pub session_id: Uuid,
    pub tool_id: Option<Uuid>,
    pub tool_name: String,
    pub tool_version: String,
    pub tier: String,
    pub step_index: i32,
    pub step_key: Option<String>,
    pub call_signature: String,
    /// JSON, as it was given.
    pub args: Vec<u8>,
    /// JSON, as it was reported; empty: none.
    pub result: Vec<u8>,
    pub state: String,
    pub attempt: i32,
    pub position: Option<i32>,
    pub outcome: Option<String>,
    pub error: Option<String>,
    pub duration_ms: Option<i64>,
    pub executed_at: DateTime<Utc>,
    pub committed_at: Option<DateTime<Utc>>,
    pub compensated_at: Option<DateTime<Utc>>,
    pub lease_expires_at: Option<DateTime<Utc>>,
    pub replay_count: i16,
    pub approval_request_id: Option<Uuid>,
    /// JSON, as it was rendered; empty: none.
    pub compensation_args: Vec<u8>,
}

#[derive(Debug, FromRow)]
pub(crate) struct EffectShown {
    effect_id: Uuid,
    session_id: Uuid,
    tool_id: Option<Uuid>,
    tool_name: String,
    tool_version: String,
    tier: String,
    step_index: i32,
    step_key: Option<String>,
    call_signature: String,
    args_text: String,
    args_raw: Option<Vec<u8>>,
    result_text: Option<String>,
    result_raw: Option<Vec<u8>>,
    compensation_text: Option<String>,
    compensation_raw: Option<Vec<u8>>,
    state: String,
    attempt: i32,
    position: Option<i32>,
    outcome: Option<String>,
    error: Option<String>,
    error_raw: Option<Vec<u8>>,
    duration_ms: Option<i64>,
    executed_at: DateTime<Utc>,
    committed_at: Option<DateTime<Utc>>,
    compensated_at: Option<DateTime<Utc>>,
    lease_expires_at: Option<DateTime<Utc>>,
    replay_count: i16,
    approval_request_id: Option<Uuid>,
    pub(crate) matched: i64,
}

impl EffectShown {
    pub(crate) fn view(self) -> Result<EffectView, StepError> {
        let error_raw = self.error_raw;
        let result = optional(self.result_text, self.result_raw.as_deref())?;
        let compensation = optional(self.compensation_text, self.compensation_raw.as_deref())?;
        Ok(EffectView {
            effect_id: self.effect_id,
            session_id: self.session_id,
            tool_id: self.tool_id,
            tool_name: self.tool_name,
            tool_version: self.tool_version,
            tier: self.tier,
            step_index: self.step_index,
            step_key: self.step_key,
            call_signature: self.call_signature,
            args: payload::text(&self.args_text, self.args_raw.as_deref())?,
            result,
            state: self.state,
            attempt: self.attempt,
            position: self.position,
            outcome: self.outcome,
            error: self.error.map(|shown| shown_from(&shown, error_raw.as_deref())),
            duration_ms: self.duration_ms,
            executed_at: self.executed_at,
            committed_at: self.committed_at,
            compensated_at: self.compensated_at,
            lease_expires_at: self.lease_expires_at,
            replay_count: self.replay_count,
            approval_request_id: self.approval_request_id,
            compensation_args: compensation,
        })
    }
}

fn optional(text: Option<String>, raw: Option<&[u8]>) -> Result<Vec<u8>, StepError> {
    text.map_or_else(|| Ok(Vec::new()), |text| payload::text(&text, raw))
}

/// The effects of a session, by step.
pub async fn list_effects(
    store: &Store,
    caller: &Caller,
    session_id: Uuid,
    paging: &Paging,
) -> Result<Page<EffectView>, StepError> {
    let limit = paging.rows()?;
    let after = paging.after::<(Uuid, i32, Uuid)>("effects")?;
    let (step_index, effect_id) = match after {
        None => (-1, Uuid::nil()),
        Some((of, step_index, effect_id)) if of == session_id => (step_index, effect_id),
        Some(_) => return Err(super::page::refused()),
    };
    let mut tx = Tenant::begin(store, caller.org_id).await?;
    let times: Option<(DateTime<Utc>, DateTime<Utc>)> = sqlx::query_as(
        "SELECT started_at, greatest(clock_timestamp(), last_executed_at) + interval '1 hour' \
         FROM undolog_sessions \
         WHERE org_id = $1 AND session_id = $2 AND ($3::text IS NULL OR principal = $3)",
    )
    .bind(caller.org_id)
    .bind(session_id)
    .bind(only_of(caller))
    .fetch_optional(tx.conn())
    .await?;
    let Some((started_at, executed_until)) = times else {
        tx.commit().await?;
        return Err(session::not_found(session_id));
    };
    let rows: Vec<EffectShown> = sqlx::query_as(include_str!("../../sql/effect_list.sql"))
        .bind(caller.org_id)
        .bind(session_id)
        .bind(started_at)
        .bind(step_index)
        .bind(effect_id)
        .bind(limit + 1)
        .bind(page_bytes())
        .bind(executed_until)
        .fetch_all(tx.conn())
        .await?;
    tx.commit().await?;
    let matched = rows.first().map_or(0, |row| row.matched);
    let views = rows.into_iter().map(EffectShown::view).collect::<Result<Vec<_>, _>>()?;
    Page::cut("effects", views, limit, matched, |view| {
        (session_id, view.step_index, view.effect_id)
    })
}
