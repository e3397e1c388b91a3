//! RegisterTool: a version of a tool is added, or changed.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::registry::{self, RegisterTool, ToolInput};

use super::shown;
use crate::{
    call::{Call, Engine},
    convert::{invalid, optional_uuid},
    status,
};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::RegisterToolRequest>,
) -> Result<v1::RegisterToolResponse, Status> {
    let tool = call.message.tool.ok_or_else(|| invalid("tool is missing"))?;
    let step = RegisterTool { caller: call.caller, tool: input(tool)?, dev: engine.is_dev() };
    let registered = engine.run(step).await?;
    Ok(v1::RegisterToolResponse {
        tool: Some(shown::tool(registered.row)?),
        created: registered.created,
    })
}

/// What a caller may say of a tool. Ids, times and `is_active` are the registry's to say.
fn input(tool: v1::Tool) -> Result<ToolInput, Status> {
    Ok(ToolInput {
        tier: registry::tier_named(&tool.tier).map_err(|error| status::of_error(&error))?,
        project_id: optional_uuid("project_id", &tool.project_id)?,
        tool_name: tool.tool_name,
        tool_version: tool.tool_version,
        irreversibility_reason: tool.irreversibility_reason,
        compensation_ref: tool.compensation_ref,
        tool_schema: tool.tool_schema,
        risk_tags: tool.risk_tags,
        estimated_impact: tool.estimated_impact,
        idempotent: tool.idempotent,
        grant_lease_ms: tool.grant_lease_ms,
        max_execution_ms: tool.max_execution_ms,
        allowed_compensations: tool.allowed_compensations,
        approval_timeout_seconds: tool.approval_timeout_seconds,
        auto_approve_on_timeout: tool.auto_approve_on_timeout,
        approval_quorum: tool.approval_quorum,
        requester_may_approve: tool.requester_may_approve,
        probe: tool.probe,
        upstream: tool.upstream,
        execute_on_approval: tool.execute_on_approval,
        compensation_args: tool.compensation_args,
        caller_args: tool.caller_args,
    })
}
