//! Tools and compensations.

use super::shown;
use crate::rest::json::Json;

shown! {
    /// One version of a tool.
    Tool {
        tool_id: String,
        tool_name: String,
        tool_version: String,
        tier: String,
        irreversibility_reason: Option<String>,
        compensation_ref: Option<String>,
        tool_schema: Json,
        risk_tags: Vec<String>,
        estimated_impact: Option<String>,
        is_active: bool,
        project_id: Option<String>,
        idempotent: bool,
        grant_lease_ms: u32,
        max_execution_ms: u32,
        allowed_compensations: Vec<String>,
        approval_timeout_seconds: u32,
        auto_approve_on_timeout: Option<bool>,
        approval_quorum: u32,
        requester_may_approve: Option<bool>,
        probe: Json,
        upstream: Json,
        execute_on_approval: Option<bool>,
        compensation_args: Json,
        caller_args: bool,
        registered_at: Option<String>,
        updated_at: Option<String>,
    }

    /// A registered tool.
    RegisterToolResponse {
        tool: Option<Tool>,
        created: bool,
    }

    /// A tool.
    GetToolResponse {
        tool: Option<Tool>,
    }

    /// One page of tools.
    ListToolsResponse {
        tools: Vec<Tool>,
        next_page_token: Option<String>,
    }

    /// One version of a compensation.
    Compensation {
        compensation_id: String,
        fn_name: String,
        fn_version: String,
        description: Option<String>,
        fn_body: Json,
        args_schema: Json,
        max_retries: Option<u32>,
        retry_backoff_ms: Option<u32>,
        is_active: bool,
        open: bool,
        concurrency_max: Option<u32>,
        rate_per_minute: Option<u32>,
        result_from: String,
        registered_at: Option<String>,
    }

    /// A registered compensation.
    RegisterCompensationResponse {
        compensation: Option<Compensation>,
        created: bool,
    }

    /// A compensation.
    GetCompensationResponse {
        compensation: Option<Compensation>,
    }

    /// One page of compensations.
    ListCompensationsResponse {
        compensations: Vec<Compensation>,
        next_page_token: Option<String>,
    }
}
