//! Tools and compensations.

use std::sync::Arc;

use axum::{Json as Body, extract::State};
use serde::Deserialize;
use undolog_proto::v1;
use utoipa::{IntoParams, ToSchema};

use super::{
    answer::Errors,
    asked::Page,
    extract::{Asked, Named, Told},
    json::{Json, bytes_of},
    shown::{
        GetCompensationResponse, GetToolResponse, ListCompensationsResponse, ListToolsResponse,
        RegisterCompensationResponse, RegisterToolResponse,
    },
};
use crate::{
    call::{Caller, rpc},
    error::Refused,
    service::Proxy,
};

/// A version of a tool, as it is registered.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolBody {
    /// Semver; left out: 1.0.0.
    #[serde(default)]
    tool_version: String,
    /// `safe`, `compensable` or `irreversible`.
    tier: String,
    /// Why it cannot be undone, for an irreversible tool.
    #[serde(default)]
    irreversibility_reason: String,
    /// How it is undone, for a compensable tool.
    #[serde(default)]
    compensation_ref: String,
    /// The MCP tool object, or a bare JSON schema of the arguments.
    #[schema(value_type = Option<serde_json::Value>)]
    tool_schema: Option<Json>,
    #[serde(default)]
    risk_tags: Vec<String>,
    #[serde(default)]
    estimated_impact: String,
    /// A project (uuid).
    #[serde(default)]
    project_id: String,
    /// Running it again does no harm.
    #[serde(default)]
    idempotent: bool,
    /// Left out or 0: the default.
    #[serde(default)]
    grant_lease_ms: u32,
    /// Left out or 0: the default.
    #[serde(default)]
    max_execution_ms: u32,
    /// Other compensations that a call may name.
    #[serde(default)]
    allowed_compensations: Vec<String>,
    /// How long an approval waits; left out or 0: the project's or the organisation's.
    #[serde(default)]
    approval_timeout_seconds: u32,
    /// Approved when nobody decides in time; left out: the project's or the organisation's.
    auto_approve_on_timeout: Option<bool>,
    /// Distinct approvers; left out or 0: the project's, else 1.
    #[serde(default)]
    approval_quorum: u32,
    /// Who asked may approve; left out: the organisation's.
    requester_may_approve: Option<bool>,
    /// Asks whether a call of which nobody knows has happened.
    #[schema(value_type = Option<serde_json::Value>)]
    probe: Option<Json>,
    /// The endpoint that a proxy calls for a granted call.
    #[schema(value_type = Option<serde_json::Value>)]
    upstream: Option<Json>,
    /// A proxy runs an approved call without being asked again; left out: yes.
    execute_on_approval: Option<bool>,
    /// Template of the arguments of the compensation: an object.
    #[schema(value_type = Option<serde_json::Value>)]
    compensation_args: Option<Json>,
    /// Callers may name other arguments for the compensation.
    #[serde(default)]
    caller_args: bool,
}

/// Registers a version of a tool. The same contents again change nothing.
#[utoipa::path(put, path = "/tools/{name}", tag = "registry", request_body = ToolBody,
    params(("name" = String, Path, description = "The tool")),
    responses((status = 200, body = RegisterToolResponse), Errors))]
pub(super) async fn put_tool(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Named(tool_name): Named,
    Told(body): Told<ToolBody>,
) -> Result<Body<RegisterToolResponse>, Refused> {
    let tool = v1::Tool {
        tool_name,
        tool_version: body.tool_version,
        tier: body.tier,
        irreversibility_reason: body.irreversibility_reason,
        compensation_ref: body.compensation_ref,
        tool_schema: bytes_of(body.tool_schema),
        risk_tags: body.risk_tags,
        estimated_impact: body.estimated_impact,
        project_id: body.project_id,
        idempotent: body.idempotent,
        grant_lease_ms: body.grant_lease_ms,
        max_execution_ms: body.max_execution_ms,
        allowed_compensations: body.allowed_compensations,
        approval_timeout_seconds: body.approval_timeout_seconds,
        auto_approve_on_timeout: body.auto_approve_on_timeout,
        approval_quorum: body.approval_quorum,
        requester_may_approve: body.requester_may_approve,
        probe: bytes_of(body.probe),
        upstream: bytes_of(body.upstream),
        execute_on_approval: body.execute_on_approval,
        compensation_args: bytes_of(body.compensation_args),
        caller_args: body.caller_args,
        ..v1::Tool::default()
    };
    let request = v1::RegisterToolRequest { org_id: String::new(), tool: Some(tool) };
    let reply = rpc!(caller.again: proxy.registry().register_tool(request))?;
    Ok(Body(reply.into()))
}

/// Which version.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Version {
    /// Semver; left out: the newest active one.
    #[serde(default)]
    version: String,
}

/// Shows a tool.
#[utoipa::path(get, path = "/tools/{name}", tag = "registry",
    params(("name" = String, Path, description = "The tool"), Version),
    responses((status = 200, body = GetToolResponse), Errors))]
pub(super) async fn get_tool(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Named(tool_name): Named,
    Asked(which): Asked<Version>,
) -> Result<Body<GetToolResponse>, Refused> {
    let request =
        v1::GetToolRequest { org_id: String::new(), tool_name, tool_version: which.version };
    let reply = rpc!(caller.again: proxy.registry().get_tool(request))?;
    Ok(Body(reply.into()))
}

/// Lists tools.
#[utoipa::path(get, path = "/tools", tag = "registry", params(Page),
    responses((status = 200, body = ListToolsResponse), Errors))]
pub(super) async fn list_tools(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Asked(page): Asked<Page>,
) -> Result<Body<ListToolsResponse>, Refused> {
    let request = v1::ListToolsRequest {
        org_id: String::new(),
        page_size: page.page_size,
        page_token: page.page_token,
    };
    let reply = rpc!(caller.again: proxy.registry().list_tools(request))?;
    Ok(Body(reply.into()))
}

/// A version of a compensation, as it is registered.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CompensationBody {
    /// Semver; left out: 1.0.0.
    #[serde(default)]
    fn_version: String,
    #[serde(default)]
    description: String,
    /// How it is called.
    #[schema(value_type = serde_json::Value)]
    fn_body: Json,
    /// A JSON schema of its arguments; left out: anything.
    #[schema(value_type = Option<serde_json::Value>)]
    args_schema: Option<Json>,
    /// Calls after the first one; left out: 3.
    max_retries: Option<u32>,
    /// The first delay between calls; left out: 1000.
    retry_backoff_ms: Option<u32>,
    /// Agents may bind their tools to it.
    #[serde(default)]
    open: bool,
    /// Calls at the same time; left out or 0: no limit.
    concurrency_max: Option<u32>,
    /// Calls that begin within a minute; left out or 0: no limit.
    rate_per_minute: Option<u32>,
    /// `any` (the default), or `executor`: `{result}` comes only from calls that a proxy made or a
    /// probe found.
    #[serde(default)]
    result_from: String,
}

/// Registers a version of a compensation. The same contents again change nothing.
#[utoipa::path(put, path = "/compensations/{name}", tag = "registry",
    request_body = CompensationBody,
    params(("name" = String, Path, description = "The compensation")),
    responses((status = 200, body = RegisterCompensationResponse), Errors))]
pub(super) async fn put_compensation(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Named(fn_name): Named,
    Told(body): Told<CompensationBody>,
) -> Result<Body<RegisterCompensationResponse>, Refused> {
    let compensation = v1::Compensation {
        fn_name,
        fn_version: body.fn_version,
        description: body.description,
        fn_body: body.fn_body.into_bytes(),
        args_schema: bytes_of(body.args_schema),
        max_retries: body.max_retries,
        retry_backoff_ms: body.retry_backoff_ms,
        open: body.open,
        concurrency_max: body.concurrency_max,
        rate_per_minute: body.rate_per_minute,
        result_from: body.result_from,
        ..v1::Compensation::default()
    };
    let request =
        v1::RegisterCompensationRequest { org_id: String::new(), compensation: Some(compensation) };
    let reply = rpc!(caller.again: proxy.registry().register_compensation(request))?;
    Ok(Body(reply.into()))
}

/// Shows a compensation.
#[utoipa::path(get, path = "/compensations/{name}", tag = "registry",
    params(("name" = String, Path, description = "The compensation"), Version),
    responses((status = 200, body = GetCompensationResponse), Errors))]
pub(super) async fn get_compensation(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Named(fn_name): Named,
    Asked(which): Asked<Version>,
) -> Result<Body<GetCompensationResponse>, Refused> {
    let request =
        v1::GetCompensationRequest { org_id: String::new(), fn_name, fn_version: which.version };
    let reply = rpc!(caller.again: proxy.registry().get_compensation(request))?;
    Ok(Body(reply.into()))
}

/// Lists compensations.
#[utoipa::path(get, path = "/compensations", tag = "registry", params(Page),
    responses((status = 200, body = ListCompensationsResponse), Errors))]
pub(super) async fn list_compensations(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Asked(page): Asked<Page>,
) -> Result<Body<ListCompensationsResponse>, Refused> {
    let request = v1::ListCompensationsRequest {
        org_id: String::new(),
        page_size: page.page_size,
        page_token: page.page_token,
    };
    let reply = rpc!(caller.again: proxy.registry().list_compensations(request))?;
    Ok(Body(reply.into()))
}
