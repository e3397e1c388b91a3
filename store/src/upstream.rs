//! Tools with an upstream endpoint: what a proxy runs by itself, and what an executor may touch.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use undolog_core::{Reason, state::EffectState};
use uuid::Uuid;

use crate::{
    effects::EffectRow,
    error::StepError,
    payload,
    pool::Store,
    read::page::{Page, Paging, page_bytes, time_of},
    step::Caller,
    tenant::Tenant,
};

/// Approved calls that one look returns.
const APPROVED_MAX: i64 = 100;

/// An approved call that waits for a proxy.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are those of the wire's ApprovedCall")]
pub struct ApprovedCall {
    pub approval_id: Uuid,
    pub session_id: Uuid,
    pub effect_id: Uuid,
    pub tool_name: String,
    pub tool_version: String,
    pub step_index: i32,
    pub step_key: Option<String>,
    /// JSON, as it was proposed: the call's signature is over it.
    pub args: Vec<u8>,
    /// When it was decided.
    pub resolved_at: DateTime<Utc>,
}

#[derive(Debug, FromRow)]
struct ApprovedRow {
    approval_id: Uuid,
    session_id: Uuid,
    effect_id: Uuid,
    tool_name: String,
    tool_version: String,
    step_index: i32,
    step_key: Option<String>,
    args_text: String,
    args_raw: Option<Vec<u8>>,
    resolved_at: DateTime<Utc>,
    matched: i64,
}

/// Approved calls of upstream tools that nobody was granted yet.
pub async fn approved(
    store: &Store,
    org_id: Uuid,
    token: &str,
) -> Result<Page<ApprovedCall>, StepError> {
    let paging = Paging { size: 0, token: token.to_owned() };
    let (micros, approval_id) = paging.after::<(i64, Uuid)>("approved")?.unzip();
    let after = micros.map(time_of).transpose()?;
    let mut tx = Tenant::begin(store, org_id).await?;
    let rows: Vec<ApprovedRow> = sqlx::query_as(include_str!("../sql/upstream_approved.sql"))
        .bind(org_id)
        .bind(after)
        .bind(approval_id)
        .bind(APPROVED_MAX + 1)
        .bind(page_bytes())
        .fetch_all(tx.conn())
        .await?;
    tx.commit().await?;
    let matched = rows.first().map_or(0, |row| row.matched);
    let call = |row: ApprovedRow| {
        Ok::<_, StepError>(ApprovedCall {
            approval_id: row.approval_id,
            session_id: row.session_id,
            effect_id: row.effect_id,
            tool_name: row.tool_name,
            tool_version: row.tool_version,
            step_index: row.step_index,
            step_key: row.step_key,
            args: payload::text(&row.args_text, row.args_raw.as_deref())?,
            resolved_at: row.resolved_at,
        })
    };
    let calls = rows.into_iter().map(call).collect::<Result<Vec<_>, _>>()?;
    Page::cut("approved", calls, APPROVED_MAX, matched, |call| {
        (call.resolved_at.timestamp_micros(), call.approval_id)
    })
}

/// The one rule of executors: they touch approved effects of upstream tools, and nothing else.
pub(crate) async fn check_executor(
    tx: &mut Tenant,
    caller: &Caller,
    effect: Option<&EffectRow>,
) -> Result<(), StepError> {
    if !caller.role.is_bound_to_upstream_tools() || !crate::guard!("executor") {
        return Ok(());
    }
    let why = "an executor works on approved calls of upstream tools only";
    let refused = || StepError::refuse(Reason::PermissionDenied, why);
    let effect = effect.ok_or_else(refused)?;
    let undecided = [EffectState::Pending, EffectState::Rejected];
    if effect.approval_request_id.is_none() || undecided.contains(&effect.state()?) {
        return Err(refused());
    }
    if has_endpoint(tx, effect).await? { Ok(()) } else { Err(refused()) }
}

async fn has_endpoint(tx: &mut Tenant, effect: &EffectRow) -> Result<bool, StepError> {
    let org_id = tx.org_id();
    let has_endpoint: Option<bool> = sqlx::query_scalar(
        "SELECT upstream IS NOT NULL FROM undolog_tool_registry \
         WHERE org_id = $1 AND tool_id = $2",
    )
    .bind(org_id)
    .bind(effect.tool_id)
    .fetch_optional(tx.conn())
    .await?;
    Ok(has_endpoint == Some(true))
}

/// The slug of the organisation, whose secrets its endpoints may use.
pub(crate) async fn org_slug(tx: &mut Tenant) -> Result<String, StepError> {
    let org_id = tx.org_id();
    let found: Option<String> =
        sqlx::query_scalar("SELECT slug::text FROM undolog_orgs WHERE org_id = $1")
            .bind(org_id)
            .fetch_optional(tx.conn())
            .await?;
    found.ok_or_else(|| StepError::refuse(Reason::OrgNotFound, "the organisation is gone"))
}
