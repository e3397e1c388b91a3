//! From a tool call to its outcome, whatever face the call came through.

use std::sync::Arc;

use undolog_core::reason::Reason;
use undolog_proto::v1::{self, intercept_response};
use uuid::Uuid;

use crate::{
    call::{Caller, rpc},
    error::Refused,
    service::Proxy,
};

/// What became of a tool call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// The caller runs the tool now.
    Execute(v1::ExecuteOutcome),
    /// The call has a result.
    Result {
        effect_id: String,
        result: v1::ToolResult,
        /// It was run just now, by this proxy.
        is_fresh: bool,
    },
    /// A human decides first.
    Pending { effect_id: String, approval_id: String },
}

/// Asks the engine for a call.
pub(crate) async fn decide(
    proxy: &Arc<Proxy>,
    caller: &Caller,
    mut request: v1::InterceptRequest,
) -> Result<Outcome, Refused> {
    if request.grant_token.is_empty() {
        // With a token of its own, a call whose answer was lost can be asked for again.
        request.grant_token = Uuid::new_v4().to_string();
    }
    let answer = intercept(proxy, caller, request).await?;
    match answer {
        intercept_response::Outcome::Execute(grant) => Ok(Outcome::Execute(grant)),
        intercept_response::Outcome::Replay(replay) => Ok(Outcome::Result {
            effect_id: replay.effect_id,
            result: replay.cached_result.unwrap_or_default(),
            is_fresh: false,
        }),
        intercept_response::Outcome::AwaitingApproval(asked) => {
            Ok(Outcome::Pending { effect_id: asked.effect_id, approval_id: asked.approval_id })
        }
    }
}

async fn intercept(
    proxy: &Proxy,
    caller: &Caller,
    request: v1::InterceptRequest,
) -> Result<intercept_response::Outcome, Refused> {
    let answer = rpc!(caller.again: proxy.engine().intercept(request))?;
    answer.outcome.ok_or_else(|| Refused::because(Reason::Internal, "the engine answered nothing"))
}
