//! Shows and lists registrations.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use undolog_core::{reason::Reason, version::newest_by};
use uuid::Uuid;

use crate::{
    error::StepError,
    pool::Store,
    read::page::{PAGE_BYTES_MAX, Page, Paging},
    step::Caller,
    tenant::Tenant,
};

/// A tool's version as it is stored.
#[derive(Debug, Clone, FromRow)]
#[expect(missing_docs, reason = "the columns are described in the schema")]
pub struct ToolRow {
    pub tool_id: Uuid,
    pub tool_name: String,
    pub tool_version: String,
    pub tier: String,
    pub irreversibility_reason: Option<String>,
    pub compensation_ref: Option<String>,
    pub tool_schema: String,
    pub risk_tags: Vec<String>,
    pub estimated_impact: Option<String>,
    pub is_active: bool,
    pub project_id: Option<Uuid>,
    pub idempotent: bool,
    pub grant_lease_ms: Option<i64>,
    pub max_execution_ms: Option<i64>,
    pub allowed_compensations: Vec<String>,
    pub registered_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    pub approval_timeout_seconds: Option<i32>,
    pub auto_approve_on_timeout: Option<bool>,
    pub approval_quorum: Option<i32>,
    pub requester_may_approve: Option<bool>,
    pub probe: Option<String>,
    pub upstream: Option<String>,
    pub execute_on_approval: bool,
    /// How many rows the page would have without the limit in bytes.
    matched: i64,
}

/// A compensation's version as it is stored.
#[derive(Debug, Clone, FromRow)]
#[expect(missing_docs, reason = "the columns are described in the schema")]
pub struct CompensationRow {
    pub compensation_id: Uuid,
    pub fn_name: String,
    pub fn_version: String,
    pub description: String,
    pub fn_body: String,
    pub args_schema: String,
    pub max_retries: i32,
    pub retry_backoff_ms: i32,
    pub is_active: bool,
    pub open: bool,
    pub registered_at: DateTime<Utc>,
    pub concurrency_max: Option<i32>,
    pub rate_per_minute: Option<i32>,
    matched: i64,
}

/// The version of a tool that was named; `""` means the newest active one, or the newest when none
/// is active.
pub async fn get_tool(
    store: &Store,
    caller: &Caller,
    name: &str,
    version: &str,
) -> Result<ToolRow, StepError> {
    let mut tx = Tenant::begin(store, caller.org_id).await?;
    let version = match version {
        "" => newest(&mut tx, NEWEST_TOOL, name).await?,
        version => Some(version.to_owned()),
    };
    let row = match version {
        Some(version) => find_tool(&mut tx, name, &version).await?,
        None => None,
    };
    tx.commit().await?;
    row.ok_or_else(|| not_registered(name))
}

/// The version of a compensation that was named; `""` means the newest one, as for tools.
pub async fn get_compensation(
    store: &Store,
    caller: &Caller,
    fn_name: &str,
    fn_version: &str,
) -> Result<CompensationRow, StepError> {
    let mut tx = Tenant::begin(store, caller.org_id).await?;
    let version = match fn_version {
        "" => newest(&mut tx, NEWEST_COMPENSATION, fn_name).await?,
        version => Some(version.to_owned()),
    };
    let row = match version {
        Some(version) => find_compensation(&mut tx, fn_name, &version).await?,
        None => None,
    };
    tx.commit().await?;
    row.ok_or_else(|| no_compensation(fn_name))
}

/// The tools of an organisation, by name and version.
pub async fn list_tools(
    store: &Store,
    caller: &Caller,
    paging: &Paging,
) -> Result<Page<ToolRow>, StepError> {
    let (limit, after) = (paging.rows()?, paging.after::<(String, String)>("tools")?);
    let (name, version) = after.unwrap_or_default();
    let mut tx = Tenant::begin(store, caller.org_id).await?;
    let rows: Vec<ToolRow> = sqlx::query_as(include_str!("../../sql/registry_tools.sql"))
        .bind(caller.org_id)
        .bind(name)
        .bind(version)
        .bind(limit + 1)
        .bind(PAGE_BYTES_MAX)
        .fetch_all(tx.conn())
        .await?;
    tx.commit().await?;
    let matched = rows.first().map_or(0, |row| row.matched);
    Page::cut("tools", rows, limit, matched, |row| {
        (row.tool_name.clone(), row.tool_version.clone())
    })
}

/// The compensations of an organisation, by name and version.
pub async fn list_compensations(
    store: &Store,
    caller: &Caller,
    paging: &Paging,
) -> Result<Page<CompensationRow>, StepError> {
    let (limit, after) = (paging.rows()?, paging.after::<(String, String)>("compensations")?);
    let (name, version) = after.unwrap_or_default();
    let mut tx = Tenant::begin(store, caller.org_id).await?;
    let sql = include_str!("../../sql/registry_compensations.sql");
    let rows: Vec<CompensationRow> = sqlx::query_as(sql)
        .bind(caller.org_id)
        .bind(name)
        .bind(version)
        .bind(limit + 1)
        .bind(PAGE_BYTES_MAX)
        .fetch_all(tx.conn())
        .await?;
    tx.commit().await?;
    let matched = rows.first().map_or(0, |row| row.matched);
    Page::cut("compensations", rows, limit, matched, |row| {
        (row.fn_name.clone(), row.fn_version.clone())
    })
}

const NEWEST_TOOL: &str = "SELECT tool_version AS version, is_active \
    FROM undolog_tool_registry WHERE org_id = $1 AND tool_name = $2";
const NEWEST_COMPENSATION: &str = "SELECT fn_version AS version, is_active \
    FROM undolog_compensation_registry WHERE org_id = $1 AND fn_name = $2";

/// The newest active version of a name, else the newest.
async fn newest(
    tx: &mut Tenant,
    sql: &'static str,
    name: &str,
) -> Result<Option<String>, StepError> {
    if name.contains('\0') {
        return Ok(None);
    }
    let org_id = tx.org_id();
    let versions: Vec<(String, bool)> =
        sqlx::query_as(sql).bind(org_id).bind(name).fetch_all(tx.conn()).await?;
    let active = newest_by(versions.iter().filter(|(_, active)| *active), |row| &row.0);
    let found = active.or_else(|| newest_by(versions.iter(), |row| &row.0));
    Ok(found.map(|(version, _)| version.clone()))
}

pub(super) async fn find_tool(
    tx: &mut Tenant,
    name: &str,
    version: &str,
) -> Result<Option<ToolRow>, StepError> {
    if name.contains('\0') || version.contains('\0') {
        return Ok(None);
    }
    let org_id = tx.org_id();
    Ok(sqlx::query_as(include_str!("../../sql/registry_tool.sql"))
        .bind(org_id)
        .bind(name)
        .bind(version)
        .fetch_optional(tx.conn())
        .await?)
}

/// A tool's version that this step has just written or found.
pub(super) async fn require_tool(
    tx: &mut Tenant,
    name: &str,
    version: &str,
) -> Result<ToolRow, StepError> {
    find_tool(tx, name, version).await?.ok_or_else(|| not_registered(name))
}

async fn find_compensation(
    tx: &mut Tenant,
    fn_name: &str,
    fn_version: &str,
) -> Result<Option<CompensationRow>, StepError> {
    if fn_name.contains('\0') || fn_version.contains('\0') {
        return Ok(None);
    }
    let org_id = tx.org_id();
    Ok(sqlx::query_as(include_str!("../../sql/registry_compensation.sql"))
        .bind(org_id)
        .bind(fn_name)
        .bind(fn_version)
        .fetch_optional(tx.conn())
        .await?)
}

/// A compensation's version that this step has just written or found.
pub(super) async fn require_compensation(
    tx: &mut Tenant,
    fn_name: &str,
    fn_version: &str,
) -> Result<CompensationRow, StepError> {
    find_compensation(tx, fn_name, fn_version).await?.ok_or_else(|| no_compensation(fn_name))
}

fn not_registered(name: &str) -> StepError {
    StepError::refuse(Reason::ToolNotRegistered, format!("there is no such version of tool {name}"))
}

fn no_compensation(fn_name: &str) -> StepError {
    StepError::refuse(
        Reason::CompensationNotFound,
        format!("there is no such version of compensation {fn_name}"),
    )
}
