//! Tools and compensations of an organisation: what a call is judged by.
//!
//! Steps read them through [`tool`] and [`compensation`], which keep the parsed form until the
//! organisation's `registry_epoch` grows. A change of the registry raises that number in its own
//! transaction, so a step that has read the number under its session's lock sees every change that
//! was committed before.

mod activate;
mod apart;
mod cache;
mod list;
mod load;
mod policy;
mod quota;
mod register_compensation;
mod register_tool;
mod rules;
mod schema;

use std::{fmt, sync::Arc};

use undolog_core::{Tier, fn_body::FnBody, json::Node, reason::Reason, state::ResultFrom};
use uuid::Uuid;

pub use activate::SetActive;
pub use apart::Apart;
pub(crate) use apart::Asked;
pub use cache::RegistryCache;
pub use list::{CompensationRow, Registration, ToolRow, get, list};
pub use load::{compensation, tool};
pub use register_compensation::{CompensationInput, RegisterCompensation};
pub use register_tool::{RegisterTool, Registered, ToolInput};
pub use rules::tier as tier_named;
use schema::Schema;

use crate::{error::StepError, gate::Limits, tenant::Tenant};

/// Locks the organisation for a change of its registry. Calls go on: what refers to the row is not
/// in the way of this lock.
async fn lock_org(tx: &mut Tenant) -> Result<(), StepError> {
    let org_id = tx.org_id();
    let found: Option<i32> =
        sqlx::query_scalar("SELECT 1 FROM undolog_orgs WHERE org_id = $1 FOR NO KEY UPDATE")
            .bind(org_id)
            .fetch_optional(tx.conn())
            .await?;
    found.map(|_| ()).ok_or_else(|| {
        StepError::refuse(Reason::OrgNotFound, "the organisation does not exist any more")
    })
}

/// Tells every process that what it keeps of this organisation's registry is over.
async fn raise_epoch(tx: &mut Tenant) -> Result<(), StepError> {
    let org_id = tx.org_id();
    let done = sqlx::query(
        "UPDATE undolog_orgs SET registry_epoch = registry_epoch + 1 WHERE org_id = $1",
    )
    .bind(org_id)
    .execute(tx.conn())
    .await?;
    crate::session::one_row(done.rows_affected(), "organisation")
}

/// A tool as calls are judged by: the named version, raised to the tier that its name has.
#[derive(Debug)]
pub struct ToolBundle {
    /// The named version's row.
    pub tool_id: Uuid,
    /// The tool's name.
    pub tool_name: String,
    /// The version that was found: the named one, or the newest active one.
    pub tool_version: String,
    /// The highest tier over all active versions of the name.
    pub tier: Tier,
    /// Why it cannot be undone; always there for an irreversible tool.
    pub irreversibility_reason: Option<String>,
    /// Tags of the risk.
    pub risk_tags: Vec<String>,
    /// What a call does, for the approver.
    pub estimated_impact: Option<String>,
    /// The compensation that the registry binds; always there for a compensable tool.
    pub compensation_ref: Option<String>,
    /// Other compensations that a call may name, listed by an administrator.
    pub allowed_compensations: Vec<String>,
    /// The tool may be run again when nobody knows whether it took effect.
    pub idempotent: bool,
    /// The lease of a grant; `None`: the default.
    pub grant_lease_ms: Option<i64>,
    /// How long heartbeats may stretch a grant; `None`: the default.
    pub max_execution_ms: Option<i64>,
    /// The project that the tool belongs to.
    pub project_id: Option<Uuid>,
    /// The endpoint that a proxy calls for a granted call, as JSON.
    pub upstream: Option<String>,
    /// The template of the compensation's arguments, as JSON.
    pub compensation_args: Option<String>,
    /// Callers may name other arguments for the compensation.
    pub caller_args: bool,
    pub(crate) input: Arc<Schema>,
}

impl ToolBundle {
    /// Checks a call's arguments against the tool's input schema. The error names the place and
    /// the rule that was broken, never the value.
    ///
    /// # Errors
    /// The check is made outside the transaction, and the step is run again.
    pub(crate) fn check_args(
        &self,
        tx: &Tenant,
        args: &Node,
    ) -> Result<Result<(), String>, StepError> {
        apart::check(tx, &self.input, args)
    }
}

/// A compensation as it is called.
pub struct CompensationBundle {
    /// Its row.
    pub compensation_id: Uuid,
    /// Its name.
    pub fn_name: String,
    /// Its version.
    pub fn_version: String,
    /// Where and how it is called.
    pub fn_body: FnBody,
    /// BLAKE3 of the stored body: each attempt keeps the one that it used.
    pub fn_hash: [u8; 32],
    /// Calls after the first one, unless the descriptor says otherwise.
    pub max_retries: i32,
    /// The first delay between calls, unless the descriptor says otherwise.
    pub retry_backoff_ms: i32,
    /// Agents may bind their own tools to it.
    pub open: bool,
    /// New effects may still be bound to it.
    pub is_active: bool,
    /// Whose word a call's result is.
    pub result_from: ResultFrom,
    /// How many calls may run at once, and begin within a minute.
    pub limits: Limits,
    pub(crate) args: Arc<Schema>,
}

impl CompensationBundle {
    /// Checks rendered arguments against `args_schema`; the error never holds a value.
    ///
    /// # Errors
    /// The check is made outside the transaction, and the step is run again.
    pub(crate) fn check_args(
        &self,
        tx: &Tenant,
        args: &Node,
    ) -> Result<Result<(), String>, StepError> {
        apart::check(tx, &self.args, args)
    }
}

impl fmt::Debug for CompensationBundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompensationBundle")
            .field("fn_name", &self.fn_name)
            .field("fn_version", &self.fn_version)
            .field("is_active", &self.is_active)
            .finish_non_exhaustive()
    }
}
