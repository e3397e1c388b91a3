//! RegisterTool: a version of a tool is added, or changed.

use std::str::FromStr as _;

use sqlx::FromRow;
use undolog_core::{
    Tier,
    json::Node,
    limits::{AGENT_SCHEMA_BYTES_MAX, EXECUTION_MS_MAX},
    reason::Reason,
    template::check_descriptor,
    tool_schema,
};
use uuid::Uuid;

use super::{
    apart::{self, Form as SchemaForm},
    list::{self, ToolRow},
    policy::Policy,
    quota,
    rules::{self, Standing, Wanted, invalid},
};
use crate::{
    error::{Decided, StepError},
    step::{Caller, Step},
    tenant::Tenant,
};

/// A tool as a caller describes it; empty texts and zeros mean "not given".
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are those of the wire's Tool")]
pub struct ToolInput {
    pub tool_name: String,
    pub tool_version: String,
    pub tier: Tier,
    pub irreversibility_reason: String,
    pub compensation_ref: String,
    pub tool_schema: Vec<u8>,
    pub risk_tags: Vec<String>,
    pub estimated_impact: String,
    pub project_id: Option<Uuid>,
    pub idempotent: bool,
    pub grant_lease_ms: u32,
    pub max_execution_ms: u32,
    pub allowed_compensations: Vec<String>,
    pub approval_timeout_seconds: u32,
    pub auto_approve_on_timeout: Option<bool>,
    pub approval_quorum: u32,
    pub requester_may_approve: Option<bool>,
    pub probe: Vec<u8>,
    pub upstream: Vec<u8>,
    pub execute_on_approval: Option<bool>,
    pub compensation_args: Vec<u8>,
    pub caller_args: bool,
}

/// Registers a tool.
#[derive(Debug, Clone)]
pub struct RegisterTool {
    /// Who registers it.
    pub caller: Caller,
    /// What is registered.
    pub tool: ToolInput,
    /// Development mode: agents may do what administrators may.
    pub dev: bool,
}

/// A registration as it stands after the step.
#[derive(Debug, Clone)]
pub struct Registered<T> {
    /// The row.
    pub row: T,
    /// There was none of this name and version before.
    pub created: bool,
}

#[derive(Debug, FromRow)]
struct StandingRow {
    tool_version: String,
    tier: String,
    compensation_ref: Option<String>,
    allowed_compensations: Vec<String>,
    idempotent: bool,
    is_active: bool,
    registered_by: String,
    #[sqlx(flatten)]
    policy: Policy,
}

/// A registration as it is stored.
#[derive(Debug)]
struct Form {
    version: String,
    schema: String,
    compensation_args: Option<String>,
}

/// What a registration does about a version's use.
#[derive(Debug, Clone, Copy)]
struct Uses {
    /// A new version is in use.
    begins: bool,
    /// A version that was taken out of use is in use again.
    comes_back: bool,
}

impl Step for RegisterTool {
    type Reply = Registered<ToolRow>;
    const NAME: &'static str = "register_tool";

    fn org_id(&self) -> Uuid {
        self.caller.org_id
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<Self::Reply>, StepError> {
        let form = self.check_form(tx)?;
        let version = &form.version;
        let policy = Policy::of(&self.tool)?;
        super::lock_org(tx).await?;
        self.check_project(tx).await?;
        let standing = standing(tx, &self.tool.tool_name).await?;
        let bound_by_rules = self.is_bound_by_rules();
        // What an administrator took out of use, no agent brings back: not the same version, and
        // not the name by another version.
        let free = !bound_by_rules || !crate::guard!("registry.inactive");
        let is_in_use = standing.is_empty() || standing.iter().any(|one| one.is_active);
        // A name that others have versions of is not this agent's to give a newest version to.
        let is_own = standing.iter().all(|one| one.registered_by == self.caller.principal);
        let begins = is_in_use && (is_own || !crate::guard!("registry.others_name"));
        let uses = Uses { begins: free || begins, comes_back: free };
        let changed = self.upsert(tx, &form, &policy, uses).await?;
        if let Some(created) = changed {
            self.check_compensation(tx).await?;
            if bound_by_rules {
                self.check_rules(tx, version, &standing).await?;
                policy.check_agent(version, &standing)?;
                quota::check_agent(tx, &self.caller.principal, &self.tool.tool_name).await?;
            }
            crate::crash_point!("register_tool.before_epoch");
            super::raise_epoch(tx).await?;
            let row = list::require(tx, &self.tool.tool_name, version).await?;
            return Ok(Ok(Registered { row, created }));
        }
        let row = list::require(tx, &self.tool.tool_name, version).await?;
        Ok(Ok(Registered { row, created: false }))
    }
}

impl RegisterTool {
    /// The caller may add protection and change what is wholly its own, nothing else.
    fn is_bound_by_rules(&self) -> bool {
        !self.dev && !self.caller.role.may_weaken_registry()
    }

    /// Checks what needs no other row.
    fn check_form(&self, tx: &Tenant) -> Result<Form, StepError> {
        let tool = &self.tool;
        rules::check_name("the tool's name", &tool.tool_name)?;
        let version = rules::version_or_default(&tool.tool_version)?;
        rules::check_text("the reason", &tool.irreversibility_reason)?;
        rules::check_text("the estimated impact", &tool.estimated_impact)?;
        rules::check_names("a risk tag", &tool.risk_tags)?;
        rules::check_names("an allowed compensation", &tool.allowed_compensations)?;
        match tool.tier {
            Tier::Irreversible if tool.irreversibility_reason.trim().is_empty() => {
                // The documented answer to a missing reason.
                return Err(StepError::refuse(
                    Reason::ToolNotRegistered,
                    "an irreversible tool needs a reason; it was not registered",
                ));
            }
            Tier::Compensable => {
                rules::check_name(
                    "the compensation of a compensable tool",
                    &tool.compensation_ref,
                )?;
            }
            _ if tool.compensation_ref.is_empty() => {}
            _ => rules::check_name("the compensation", &tool.compensation_ref)?,
        }
        check_ms("grant_lease_ms", tool.grant_lease_ms, 86_400_000)?;
        check_ms("max_execution_ms", tool.max_execution_ms, 604_800_000)?;
        let lease_ms = u64::from(tool.grant_lease_ms);
        let execution_ms = match tool.max_execution_ms {
            0 => EXECUTION_MS_MAX.max(lease_ms),
            given => u64::from(given),
        };
        if lease_ms > execution_ms {
            return Err(invalid("grant_lease_ms is longer than max_execution_ms"));
        }
        let most = if self.is_bound_by_rules() { AGENT_SCHEMA_BYTES_MAX } else { usize::MAX };
        if tool.tool_schema.len() > most {
            let why = format!("the schema of an agent's tool may have at most {most} bytes");
            return Err(StepError::refuse(Reason::LimitExceeded, why));
        }
        Ok(Form {
            version,
            schema: stored_schema(tx, &tool.tool_name, &tool.tool_schema)?,
            compensation_args: stored_args(&tool.compensation_args)?,
        })
    }

    async fn check_project(&self, tx: &mut Tenant) -> Result<(), StepError> {
        let Some(project_id) = self.tool.project_id else { return Ok(()) };
        let org_id = tx.org_id();
        let found: Option<i32> = sqlx::query_scalar(
            "SELECT 1 FROM undolog_projects WHERE org_id = $1 AND project_id = $2",
        )
        .bind(org_id)
        .bind(project_id)
        .fetch_optional(tx.conn())
        .await?;
        found.map(|_| ()).ok_or_else(|| {
            StepError::refuse(Reason::ProjectNotFound, format!("there is no project {project_id}"))
        })
    }

    /// Writes the version; `None` when it stood like this already, else whether it is new.
    async fn upsert(
        &self,
        tx: &mut Tenant,
        form: &Form,
        policy: &Policy,
        uses: Uses,
    ) -> Result<Option<bool>, StepError> {
        let tool = &self.tool;
        let org_id = tx.org_id();
        let given = |text: &str| (!text.trim().is_empty()).then(|| text.to_owned());
        let ms = |value: u32| (value != 0).then(|| i64::from(value));
        Ok(sqlx::query_scalar(include_str!("../../sql/registry_tool_upsert.sql"))
            .bind(org_id)
            .bind(&tool.tool_name)
            .bind(&form.version)
            .bind(tool.tier.as_str())
            .bind(given(&tool.irreversibility_reason))
            .bind(given(&tool.compensation_ref))
            .bind(&form.schema)
            .bind(&tool.risk_tags)
            .bind(given(&tool.estimated_impact))
            .bind(tool.project_id)
            .bind(tool.idempotent)
            .bind(ms(tool.grant_lease_ms))
            .bind(ms(tool.max_execution_ms))
            .bind(&tool.allowed_compensations)
            .bind(&self.caller.principal)
            .bind(policy.approval_timeout_seconds)
            .bind(policy.auto_approve_on_timeout)
            .bind(policy.approval_quorum)
            .bind(policy.requester_may_approve)
            .bind(&policy.probe)
            .bind(&policy.upstream)
            .bind(policy.execute_on_approval)
            .bind(uses.begins)
            .bind(uses.comes_back)
            .bind(form.compensation_args.as_deref())
            .bind(tool.caller_args)
            .fetch_optional(tx.conn())
            .await?)
    }

    /// A compensable tool's compensation is one that exists.
    async fn check_compensation(&self, tx: &mut Tenant) -> Result<(), StepError> {
        let name = &self.tool.compensation_ref;
        if self.tool.tier != Tier::Compensable || active_and_open(tx, name).await?.0 {
            return Ok(());
        }
        Err(StepError::refuse(
            Reason::CompensationNotFound,
            format!("there is no active compensation {name}"),
        ))
    }

    async fn check_rules(
        &self,
        tx: &mut Tenant,
        version: &str,
        standing: &[Standing],
    ) -> Result<(), StepError> {
        let tool = &self.tool;
        let given = Some(tool.compensation_ref.as_str()).filter(|name| !name.is_empty());
        let wanted = Wanted {
            version,
            tier: tool.tier,
            compensation_ref: given,
            allowed_compensations: &tool.allowed_compensations,
            idempotent: tool.idempotent,
        };
        rules::check_agent(&self.caller.principal, &wanted, standing)?;
        let Some(name) = given else { return Ok(()) };
        if crate::guard!("registry.open") && !active_and_open(tx, name).await?.1 {
            return Err(StepError::refuse(
                Reason::CompensationRefused,
                format!("the compensation {name} is not open to agents"),
            ));
        }
        Ok(())
    }
}

/// Is there an active version of this compensation, and is every active one open to agents?
async fn active_and_open(tx: &mut Tenant, fn_name: &str) -> Result<(bool, bool), StepError> {
    let org_id = tx.org_id();
    Ok(sqlx::query_as(
        "SELECT count(*) > 0, COALESCE(bool_and(open), false) \
         FROM undolog_compensation_registry WHERE org_id = $1 AND fn_name = $2 AND is_active",
    )
    .bind(org_id)
    .bind(fn_name)
    .fetch_one(tx.conn())
    .await?)
}

async fn standing(tx: &mut Tenant, tool_name: &str) -> Result<Vec<Standing>, StepError> {
    let org_id = tx.org_id();
    let rows: Vec<StandingRow> = sqlx::query_as(
        "SELECT tool_version, tier::text AS tier, compensation_ref, allowed_compensations, \
         idempotent, is_active, registered_by, approval_timeout_seconds, \
         auto_approve_on_timeout, approval_quorum, requester_may_approve, probe::text AS probe, \
         upstream::text AS upstream, execute_on_approval \
         FROM undolog_tool_registry WHERE org_id = $1 AND tool_name = $2",
    )
    .bind(org_id)
    .bind(tool_name)
    .fetch_all(tx.conn())
    .await?;
    let standing = rows.into_iter().map(|row| {
        let tier = Tier::from_str(&row.tier).map_err(|e| StepError::Corrupt(e.to_string()))?;
        Ok(Standing {
            version: row.tool_version,
            tier,
            compensation_ref: row.compensation_ref,
            allowed_compensations: row.allowed_compensations,
            idempotent: row.idempotent,
            is_active: row.is_active,
            registered_by: row.registered_by,
            policy: row.policy,
        })
    });
    standing.collect()
}

fn check_ms(what: &str, given_ms: u32, most_ms: u32) -> Result<(), StepError> {
    if given_ms == 0 || (1_000..=most_ms).contains(&given_ms) {
        return Ok(());
    }
    Err(invalid(format!("{what} is not between 1000 and {most_ms}")))
}

/// The template of the compensation's arguments.
fn stored_args(given: &[u8]) -> Result<Option<String>, StepError> {
    let Some(node) = rules::parse_json("compensation_args", given)? else { return Ok(None) };
    if !matches!(node, Node::Object(_)) {
        return Err(invalid("compensation_args must be an object"));
    }
    check_descriptor(&node).map_err(|error| invalid(format!("compensation_args: {error}")))?;
    rules::jsonb_text("compensation_args", &node).map(Some)
}

/// The MCP tool object as it is stored, after its input schema compiled.
fn stored_schema(tx: &Tenant, tool_name: &str, given: &[u8]) -> Result<String, StepError> {
    let node = rules::parse_json("tool_schema", given)?.unwrap_or(Node::Null);
    let tool = tool_schema::wrap(tool_name, &node);
    let input = tool_schema::input_schema(&tool).to_text_exact();
    apart::compiled(tx, SchemaForm::New, &input)?
        .map_err(|error| invalid(format!("the tool's schema does not compile: {error}")))?;
    rules::jsonb_text("tool_schema", &tool)
}
