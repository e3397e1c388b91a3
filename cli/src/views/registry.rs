use serde::Serialize;
use undolog_proto::v1::{Compensation, Tool};

use super::{Raw, shorten, text, time};

/// A registered tool.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the fields are described on the wire")]
pub struct ToolView {
    pub tool_id: String,
    pub tool_name: String,
    pub tool_version: String,
    pub tier: String,
    pub irreversibility_reason: Option<String>,
    pub compensation_ref: Option<String>,
    pub tool_schema: Raw,
    pub risk_tags: Vec<String>,
    pub estimated_impact: Option<String>,
    pub is_active: bool,
    pub project_id: Option<String>,
    pub idempotent: bool,
    pub grant_lease_ms: u32,
    pub max_execution_ms: u32,
    pub allowed_compensations: Vec<String>,
    pub approval_timeout_seconds: u32,
    pub auto_approve_on_timeout: Option<bool>,
    pub approval_quorum: u32,
    pub requester_may_approve: Option<bool>,
    pub probe: Raw,
    pub compensation_args: Raw,
    pub caller_args: bool,
    pub registered_at: Option<String>,
    pub updated_at: Option<String>,
}

impl From<&Tool> for ToolView {
    fn from(tool: &Tool) -> Self {
        Self {
            tool_id: tool.tool_id.clone(),
            tool_name: tool.tool_name.clone(),
            tool_version: tool.tool_version.clone(),
            tier: tool.tier.clone(),
            irreversibility_reason: text(&tool.irreversibility_reason),
            compensation_ref: text(&tool.compensation_ref),
            tool_schema: Raw::new(&tool.tool_schema),
            risk_tags: tool.risk_tags.clone(),
            estimated_impact: text(&tool.estimated_impact),
            is_active: tool.is_active,
            project_id: text(&tool.project_id),
            idempotent: tool.idempotent,
            grant_lease_ms: tool.grant_lease_ms,
            max_execution_ms: tool.max_execution_ms,
            allowed_compensations: tool.allowed_compensations.clone(),
            approval_timeout_seconds: tool.approval_timeout_seconds,
            auto_approve_on_timeout: tool.auto_approve_on_timeout,
            approval_quorum: tool.approval_quorum,
            requester_may_approve: tool.requester_may_approve,
            probe: Raw::new(&tool.probe),
            compensation_args: Raw::new(&tool.compensation_args),
            caller_args: tool.caller_args,
            registered_at: time(tool.registered_at.as_ref()),
            updated_at: time(tool.updated_at.as_ref()),
        }
    }
}

impl ToolView {
    /// The columns of a table of tools.
    pub const HEADERS: [&'static str; 6] =
        ["tool", "version", "tier", "compensation", "active", "reason"];

    /// The cells of a table's row.
    #[must_use]
    pub fn row(&self) -> Vec<String> {
        vec![
            self.tool_name.clone(),
            self.tool_version.clone(),
            self.tier.clone(),
            self.compensation_ref.clone().unwrap_or_default(),
            yes_no(self.is_active),
            shorten(self.irreversibility_reason.as_deref().unwrap_or_default(), 50),
        ]
    }

    /// The fields of a record.
    #[must_use]
    pub fn record(&self) -> Vec<(&'static str, String)> {
        vec![
            ("tool", self.tool_name.clone()),
            ("version", self.tool_version.clone()),
            ("id", self.tool_id.clone()),
            ("tier", self.tier.clone()),
            ("reason", self.irreversibility_reason.clone().unwrap_or_default()),
            ("compensation", self.compensation_ref.clone().unwrap_or_default()),
            ("compensation args", self.compensation_args.whole()),
            ("args by callers", yes_no(self.caller_args)),
            ("allowed compensations", self.allowed_compensations.join(", ")),
            ("active", yes_no(self.is_active)),
            ("idempotent", yes_no(self.idempotent)),
            ("risk tags", self.risk_tags.join(", ")),
            ("estimated impact", self.estimated_impact.clone().unwrap_or_default()),
            ("grant lease ms", or_default(self.grant_lease_ms)),
            ("max execution ms", or_default(self.max_execution_ms)),
            ("approval timeout s", or_default(self.approval_timeout_seconds)),
            ("approved by silence", self.auto_approve_on_timeout.map(yes_no).unwrap_or_default()),
            ("approvers", or_default(self.approval_quorum)),
            ("own approval", self.requester_may_approve.map(yes_no).unwrap_or_default()),
            ("probe", self.probe.whole()),
            ("registered", self.registered_at.clone().unwrap_or_default()),
            ("schema", self.tool_schema.whole()),
        ]
    }
}

/// A registered compensation.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the fields are described on the wire")]
pub struct CompensationView {
    pub compensation_id: String,
    pub fn_name: String,
    pub fn_version: String,
    pub description: String,
    pub fn_body: Raw,
    pub args_schema: Raw,
    pub max_retries: u32,
    pub retry_backoff_ms: u32,
    pub is_active: bool,
    pub open: bool,
    pub concurrency_max: Option<u32>,
    pub rate_per_minute: Option<u32>,
    pub result_from: String,
    pub registered_at: Option<String>,
}

impl From<&Compensation> for CompensationView {
    fn from(compensation: &Compensation) -> Self {
        Self {
            compensation_id: compensation.compensation_id.clone(),
            fn_name: compensation.fn_name.clone(),
            fn_version: compensation.fn_version.clone(),
            description: compensation.description.clone(),
            fn_body: Raw::new(&compensation.fn_body),
            args_schema: Raw::new(&compensation.args_schema),
            max_retries: compensation.max_retries.unwrap_or_default(),
            retry_backoff_ms: compensation.retry_backoff_ms.unwrap_or_default(),
            is_active: compensation.is_active,
            open: compensation.open,
            concurrency_max: compensation.concurrency_max,
            rate_per_minute: compensation.rate_per_minute,
            result_from: compensation.result_from.clone(),
            registered_at: time(compensation.registered_at.as_ref()),
        }
    }
}

impl CompensationView {
    /// The columns of a table of compensations.
    pub const HEADERS: [&'static str; 6] =
        ["compensation", "version", "retries", "backoff ms", "active", "description"];

    /// The cells of a table's row.
    #[must_use]
    pub fn row(&self) -> Vec<String> {
        vec![
            self.fn_name.clone(),
            self.fn_version.clone(),
            self.max_retries.to_string(),
            self.retry_backoff_ms.to_string(),
            yes_no(self.is_active),
            shorten(&self.description, 50),
        ]
    }

    /// The fields of a record.
    #[must_use]
    pub fn record(&self) -> Vec<(&'static str, String)> {
        vec![
            ("compensation", self.fn_name.clone()),
            ("version", self.fn_version.clone()),
            ("id", self.compensation_id.clone()),
            ("description", self.description.clone()),
            ("retries", self.max_retries.to_string()),
            ("backoff ms", self.retry_backoff_ms.to_string()),
            ("active", yes_no(self.is_active)),
            ("open to agents", yes_no(self.open)),
            ("calls at once", limit(self.concurrency_max)),
            ("calls a minute", limit(self.rate_per_minute)),
            ("result from", self.result_from.clone()),
            ("registered", self.registered_at.clone().unwrap_or_default()),
            ("call", self.fn_body.whole()),
            ("args schema", self.args_schema.whole()),
        ]
    }
}

fn yes_no(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

fn or_default(number: u32) -> String {
    if number == 0 { "default".to_owned() } else { number.to_string() }
}

fn limit(number: Option<u32>) -> String {
    number.filter(|number| *number > 0).map(|number| number.to_string()).unwrap_or_default()
}
