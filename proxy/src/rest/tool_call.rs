//! `POST /mcp/tool_call`: may this tool run, and what did it give?

use std::sync::Arc;

use axum::{
    Json as Body,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header::RETRY_AFTER};
use serde::{Deserialize, Serialize};
use undolog_core::reason::Reason;
use undolog_proto::v1;
use utoipa::ToSchema;

use super::{
    answer::{Errors, seconds},
    extract::Told,
    json::{Json, Object, bytes_of},
    shown::Wire as _,
};
use crate::{
    call::Caller,
    error::Refused,
    outcome::{self, Outcome},
    service::Proxy,
};

/// A tool call before it runs.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolCall {
    /// The session (uuid); else `X-UndoLog-Session-Id` names it.
    #[schema(format = Uuid)]
    session_id: Option<String>,
    /// The tool.
    tool_name: String,
    /// Its version; left out: the newest active one.
    #[serde(default)]
    tool_version: Option<String>,
    /// The tool's id (uuid), if the caller knows it.
    tool_id: Option<String>,
    /// The call's place in the session.
    step_index: Option<u32>,
    /// A framework's own id of the call, instead of `step_index`.
    step_key: Option<String>,
    /// The arguments; left out: `{}`.
    #[schema(value_type = Option<serde_json::Value>)]
    args: Option<Json>,
    /// The caller's own signature of the call, to be checked.
    signature: Option<String>,
    /// The same for every try of one call: a lost answer is then given again.
    grant_token: Option<String>,
    /// How long to wait for a decision or for another caller's result, at most 25 000.
    wait_ms: Option<u32>,
    /// The caller will send heartbeats, so its grant may have a short lease.
    heartbeats: Option<bool>,
    /// The caller runs what an approver edited.
    accepts_approved_args: Option<bool>,
    /// Anything that helps an approver to decide, at most 64 KiB.
    #[schema(value_type = Option<serde_json::Value>)]
    agent_context: Option<Json>,
    /// How the call is undone, where the registry leaves it open.
    #[schema(value_type = Option<Descriptor>)]
    compensation: Option<Object<Descriptor>>,
}

/// How a call is undone.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Descriptor {
    /// The compensation.
    fn_name: String,
    /// Its version; left out: the newest active one.
    fn_version: Option<String>,
    /// A template of its arguments.
    #[schema(value_type = Option<serde_json::Value>)]
    args: Option<Json>,
    /// Calls after the first one.
    max_retries: Option<u32>,
    /// The first delay between calls.
    retry_backoff_ms: Option<u32>,
}

impl ToolCall {
    fn message(self, caller: &Caller) -> v1::InterceptRequest {
        v1::InterceptRequest {
            tool_call: Some(v1::ToolCall {
                org_id: String::new(),
                session_id: caller.session(self.session_id),
                tool_id: self.tool_id.unwrap_or_default(),
                tool_name: self.tool_name,
                tool_version: self.tool_version.unwrap_or_default(),
                step_index: self.step_index.unwrap_or_default(),
                args: bytes_of(self.args),
                signature: self.signature.unwrap_or_default(),
            }),
            compensation: self.compensation.map(|Object(named)| v1::CompensationDescriptor {
                fn_name: named.fn_name,
                fn_version: named.fn_version.unwrap_or_default(),
                args: bytes_of(named.args),
                max_retries: named.max_retries,
                retry_backoff_ms: named.retry_backoff_ms,
            }),
            agent_context: bytes_of(self.agent_context),
            wait_ms: self.wait_ms.unwrap_or_default(),
            step_key: self.step_key.unwrap_or_default(),
            grant_token: self.grant_token.unwrap_or_default(),
            accepts_approved_args: self.accepts_approved_args.unwrap_or_default(),
            heartbeats: self.heartbeats.unwrap_or_default(),
            executor_token: String::new(),
            reports_with_token: false,
        }
    }
}

/// An execution's result.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ToolResult {
    success: bool,
    output: Json,
    error: Option<String>,
    duration_ms: u64,
}

impl From<v1::ToolResult> for ToolResult {
    fn from(result: v1::ToolResult) -> Self {
        Self {
            success: result.success,
            output: Json::stored(result.output),
            error: Option::wire(result.error),
            duration_ms: result.duration_ms,
        }
    }
}

/// What becomes of a tool call.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub(super) enum Answer {
    /// The caller runs the tool now, and reports.
    Executed {
        /// Always `client`.
        executed_by: &'static str,
        /// The effect to report on; empty for a SAFE tool, which is not recorded.
        effect_id: String,
        /// The attempt to report on.
        attempt: u32,
        /// When the grant is lost unless it is reported or renewed.
        lease_expires_at: Option<String>,
        /// The approval that this grant spends.
        approval_id: Option<String>,
        /// The arguments to run with, when an approver edited them.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<serde_json::Value>)]
        approved_args: Option<Json>,
    },
    /// The call has a result; nothing is to be run.
    Replayed {
        /// `proxy` when this proxy has just run it.
        #[serde(skip_serializing_if = "Option::is_none")]
        executed_by: Option<&'static str>,
        /// The effect.
        effect_id: String,
        /// Its result.
        result: ToolResult,
    },
    /// A human decides first; the same call again hears the decision.
    PendingApproval {
        /// The effect.
        effect_id: String,
        /// The request that is decided.
        approval_id: String,
        /// Seconds until it is worth asking again.
        retry_after: u64,
    },
}

impl From<Outcome> for Answer {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Execute(grant) => Self::Executed {
                executed_by: "client",
                effect_id: grant.effect_id,
                attempt: grant.attempt,
                lease_expires_at: Option::wire(grant.lease_expires_at),
                approval_id: Option::wire(grant.approval_id),
                approved_args: (!grant.approved_args.is_empty())
                    .then(|| Json::stored(grant.approved_args)),
            },
            Outcome::Result { effect_id, result, is_fresh } => Self::Replayed {
                executed_by: is_fresh.then_some("proxy"),
                effect_id,
                result: result.into(),
            },
            Outcome::Pending { effect_id, approval_id } => Self::PendingApproval {
                effect_id,
                approval_id,
                retry_after: seconds(
                    Reason::SessionAwaitingApproval.retry_after_ms().unwrap_or_default(),
                ),
            },
        }
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let Self::PendingApproval { retry_after, .. } = &self else {
            return Body(self).into_response();
        };
        let headers = [(RETRY_AFTER, HeaderValue::from(*retry_after))];
        (StatusCode::ACCEPTED, headers, Body(self)).into_response()
    }
}

/// Asks for a tool call.
///
/// `executed` always means: the caller runs the tool now, and reports its outcome. `replayed`
/// carries a result; with `executed_by: proxy` the proxy has just run the tool's endpoint.
#[utoipa::path(post, path = "/mcp/tool_call", tag = "calls", request_body = ToolCall,
    responses(
        (status = 200, body = Answer, description = "Run it now, or here is its result"),
        (status = 202, body = Answer, description = "A human decides first"),
        Errors))]
pub(super) async fn tool_call(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Told(call): Told<ToolCall>,
) -> Result<Answer, Refused> {
    let request = call.message(&caller);
    // Each waiting call has a place until it is answered.
    let _waits = match request.wait_ms {
        0 => None,
        _ => Some(proxy.waits.take(caller.who)?),
    };
    outcome::decide(&proxy, &caller, request).await.map(Answer::from)
}
