//! Shows and lists registrations.

use chrono::{DateTime, Utc};
use sqlx::{FromRow, postgres::PgRow};
use undolog_core::{reason::Reason, version::newest_by};
use uuid::Uuid;

use crate::{
    error::StepError,
    pool::Store,
    read::page::{Page, Paging, page_bytes},
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
    pub compensation_args: Option<String>,
    pub caller_args: bool,
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
    pub result_from: String,
    matched: i64,
}

/// What is registered under a name and a version: tools and compensations.
pub trait Registration: for<'r> FromRow<'r, PgRow> + Send + Unpin {
    /// The list's name, in the tokens of its pages.
    const LIST: &'static str;
    /// Reads a page of versions by name and version.
    const PAGE: &'static str;
    /// Reads one version.
    const ONE: &'static str;
    /// Reads the versions of a name, and which of them are active.
    const VERSIONS: &'static str;
    /// Takes versions of a name out of use, or back; answers those that stood differently.
    const SET_ACTIVE: &'static str;

    /// Its name and version.
    fn key(&self) -> (String, String);
    /// How many rows the page would have without the limit in bytes.
    fn matched(&self) -> i64;
    /// The refusal when there is no such version.
    fn not_found(name: &str) -> StepError;
}

impl Registration for ToolRow {
    const LIST: &'static str = "tools";
    const PAGE: &'static str = include_str!("../../sql/registry_tools.sql");
    const ONE: &'static str = include_str!("../../sql/registry_tool.sql");
    const VERSIONS: &'static str = "SELECT tool_version AS version, is_active \
        FROM undolog_tool_registry WHERE org_id = $1 AND tool_name = $2";
    const SET_ACTIVE: &'static str = include_str!("../../sql/registry_tool_active.sql");

    fn key(&self) -> (String, String) {
        (self.tool_name.clone(), self.tool_version.clone())
    }

    fn matched(&self) -> i64 {
        self.matched
    }

    fn not_found(name: &str) -> StepError {
        let why = format!("there is no such version of tool {name}");
        StepError::refuse(Reason::ToolNotRegistered, why)
    }
}

impl Registration for CompensationRow {
    const LIST: &'static str = "compensations";
    const PAGE: &'static str = include_str!("../../sql/registry_compensations.sql");
    const ONE: &'static str = include_str!("../../sql/registry_compensation.sql");
    const VERSIONS: &'static str = "SELECT fn_version AS version, is_active \
        FROM undolog_compensation_registry WHERE org_id = $1 AND fn_name = $2";
    const SET_ACTIVE: &'static str = include_str!("../../sql/registry_compensation_active.sql");

    fn key(&self) -> (String, String) {
        (self.fn_name.clone(), self.fn_version.clone())
    }

    fn matched(&self) -> i64 {
        self.matched
    }

    fn not_found(name: &str) -> StepError {
        let why = format!("there is no such version of compensation {name}");
        StepError::refuse(Reason::CompensationNotFound, why)
    }
}

/// The version that was named; `""` means the newest active one, or the newest when none is active.
///
/// # Errors
/// There is none, or the database could not be reached.
pub async fn get<R: Registration>(
    store: &Store,
    caller: &Caller,
    name: &str,
    version: &str,
) -> Result<R, StepError> {
    let mut tx = Tenant::begin(store, caller.org_id).await?;
    let version = match version {
        "" => newest::<R>(&mut tx, name).await?,
        version => Some(version.to_owned()),
    };
    let row = match version {
        Some(version) => find(&mut tx, name, &version).await?,
        None => None,
    };
    tx.commit().await?;
    row.ok_or_else(|| R::not_found(name))
}

/// What an organisation has registered, by name and version.
///
/// # Errors
/// The page is refused, or the database could not be reached.
pub async fn list<R: Registration>(
    store: &Store,
    caller: &Caller,
    paging: &Paging,
) -> Result<Page<R>, StepError> {
    let (limit, after) = (paging.rows()?, paging.after::<(String, String)>(R::LIST)?);
    let (name, version) = after.unwrap_or_default();
    let mut tx = Tenant::begin(store, caller.org_id).await?;
    let rows: Vec<R> = sqlx::query_as(R::PAGE)
        .bind(caller.org_id)
        .bind(name)
        .bind(version)
        .bind(limit + 1)
        .bind(page_bytes())
        .fetch_all(tx.conn())
        .await?;
    tx.commit().await?;
    let matched = rows.first().map_or(0, R::matched);
    Page::cut(R::LIST, rows, limit, matched, R::key)
}

/// The versions of a name, and which of them are active.
pub(super) async fn versions<R: Registration>(
    tx: &mut Tenant,
    name: &str,
) -> Result<Vec<(String, bool)>, StepError> {
    if name.contains('\0') {
        return Ok(Vec::new());
    }
    let org_id = tx.org_id();
    Ok(sqlx::query_as(R::VERSIONS).bind(org_id).bind(name).fetch_all(tx.conn()).await?)
}

/// The newest active version of a name, else the newest.
async fn newest<R: Registration>(tx: &mut Tenant, name: &str) -> Result<Option<String>, StepError> {
    let versions = versions::<R>(tx, name).await?;
    let active = newest_by(versions.iter().filter(|(_, active)| *active), |row| &row.0);
    let found = active.or_else(|| newest_by(versions.iter(), |row| &row.0));
    Ok(found.map(|(version, _)| version.clone()))
}

async fn find<R: Registration>(
    tx: &mut Tenant,
    name: &str,
    version: &str,
) -> Result<Option<R>, StepError> {
    if name.contains('\0') || version.contains('\0') {
        return Ok(None);
    }
    let org_id = tx.org_id();
    Ok(sqlx::query_as(R::ONE)
        .bind(org_id)
        .bind(name)
        .bind(version)
        .fetch_optional(tx.conn())
        .await?)
}

/// A version that this step has just written or found.
pub(super) async fn require<R: Registration>(
    tx: &mut Tenant,
    name: &str,
    version: &str,
) -> Result<R, StepError> {
    find(tx, name, version).await?.ok_or_else(|| R::not_found(name))
}
