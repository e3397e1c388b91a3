//! Intercept: may the caller run this tool now?

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tonic::Status;
use undolog_core::{
    limits::{WAIT_MARGIN_MS, WAIT_MS_MAX},
    reason::{Reason, Refusal},
};
use undolog_proto::v1::{self, intercept_response::Outcome};
use undolog_store::{
    StepError,
    intercept::{
        DescriptorInput, Intercept, InterceptInput, InterceptReply, StepRef, StoredResult,
    },
};
use uuid::Uuid;

use crate::{
    call::{Call, Engine},
    convert::{given, id, invalid, timestamp, uuid},
    hub::Until,
    status,
    together::{Answer, Denied},
};

/// How soon a call is tried again that met another one, when nothing says which effect it was.
const TRY_AGAIN: Duration = Duration::from_millis(200);

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::InterceptRequest>,
) -> Result<v1::InterceptResponse, Status> {
    let (org_id, session_id) = (call.caller.org_id, session_of(&call)?);
    let wait_ends = wait_ends(&call);
    let step = step(call).map_err(|error| status::of_error(&error))?;
    let mut answer: Answer = engine.store.run(step.clone()).await.map_err(Denied::from);
    loop {
        engine.bells.ring(&[org_id, session_id]);
        let waits_for = match &answer {
            Ok(InterceptReply::AwaitingApproval { effect_id, .. }) => {
                Some((Some(*effect_id), Until::Decided))
            }
            Err(Denied::Refused(refusal)) if refusal.reason == Reason::InProgress => {
                Some((effect_of(refusal), Until::GrantEnds))
            }
            _ => None,
        };
        // An engine that stops has no time to wait: the caller asks another one.
        let may_wait = !engine.stop.is_cancelled();
        let patient = wait_ends.filter(|ends| may_wait && *ends > Instant::now());
        let (Some(ends), Some((effect_id, until))) = (patient, waits_for) else {
            return answer.map(response).map_err(Status::from);
        };
        // A caller that goes away ends this wait with its request: nothing is granted to it.
        if !wait(engine, org_id, effect_id, until, ends).await {
            // Nothing changed. Asking again would only tell the same, and all who came together
            // lose their patience together.
            return answer.map(response).map_err(Status::from);
        }
        answer = match effect_id {
            Some(effect_id) => engine.gathered.ask(&engine.store, effect_id, step.clone()).await,
            None => engine.store.run(step.clone()).await.map_err(Denied::from),
        };
    }
}

/// Waits for the effect's next change, or until the caller's patience ends. Tells whether there is
/// a reason to ask again.
async fn wait(
    engine: &Arc<Engine>,
    org_id: Uuid,
    effect_id: Option<Uuid>,
    until: Until,
    ends: Instant,
) -> bool {
    let Some(effect_id) = effect_id else {
        tokio::time::sleep_until(ends.min(Instant::now() + TRY_AGAIN)).await;
        return true;
    };
    let waiting = engine.hub.wait(org_id, effect_id, until);
    tokio::select! {
        () = waiting.changed() => true,
        () = tokio::time::sleep_until(ends) => false,
        () = engine.stop.cancelled() => false,
    }
}

/// When the caller's patience ends: early enough to answer within its deadline.
fn wait_ends(call: &Call<v1::InterceptRequest>) -> Option<Instant> {
    let wait_ms = u64::from(call.message.wait_ms).min(WAIT_MS_MAX);
    let answer_by = call.deadline.checked_sub(Duration::from_millis(WAIT_MARGIN_MS))?;
    (wait_ms > 0).then(|| answer_by.min(Instant::now() + Duration::from_millis(wait_ms)))
}

fn session_of(call: &Call<v1::InterceptRequest>) -> Result<Uuid, Status> {
    let tool_call =
        call.message.tool_call.as_ref().ok_or_else(|| invalid("tool_call is missing"))?;
    uuid("session_id", &tool_call.session_id)
}

fn effect_of(refusal: &Refusal) -> Option<Uuid> {
    let value = refusal.metadata.iter().find(|(key, _)| *key == "effect_id").map(|(_, v)| v)?;
    Uuid::parse_str(value).ok()
}

fn step(call: Call<v1::InterceptRequest>) -> Result<Intercept, StepError> {
    let refuse = |reason, message: &str| Err(StepError::refuse(reason, message));
    let request = call.message;
    let Some(tool_call) = request.tool_call else {
        return refuse(Reason::InvalidArgument, "tool_call is missing");
    };
    let parse = |field: &str, text: &str| {
        Uuid::parse_str(text)
            .map_err(|_| StepError::refuse(Reason::InvalidArgument, format!("{field} is no uuid")))
    };
    let step = if request.step_key.is_empty() {
        StepRef::Index { step_index: tool_call.step_index, signature: given(tool_call.signature) }
    } else if tool_call.step_index != 0 || !tool_call.signature.is_empty() {
        return refuse(Reason::StepInvalid, "with step_key, step_index and signature are empty");
    } else {
        StepRef::Key(request.step_key)
    };
    let tool_id = match tool_call.tool_id.as_str() {
        "" => None,
        text => Some(parse("tool_id", text)?),
    };
    Intercept::new(InterceptInput {
        caller: call.caller,
        session_id: parse("session_id", &tool_call.session_id)?,
        tool_id,
        tool_name: tool_call.tool_name,
        tool_version: tool_call.tool_version,
        step,
        args: tool_call.args,
        compensation: request.compensation.map(descriptor),
        agent_context: request.agent_context,
        grant_token: given(request.grant_token),
        accepts_approved_args: request.accepts_approved_args,
        heartbeats: request.heartbeats,
        executor_token: given(request.executor_token),
        reports_with_token: request.reports_with_token,
    })
}

fn descriptor(named: v1::CompensationDescriptor) -> DescriptorInput {
    DescriptorInput {
        fn_name: named.fn_name,
        fn_version: given(named.fn_version),
        args: named.args,
        max_retries: named.max_retries,
        retry_backoff_ms: named.retry_backoff_ms,
    }
}

fn response(reply: InterceptReply) -> v1::InterceptResponse {
    let outcome = match reply {
        InterceptReply::Execute {
            effect_id,
            attempt,
            lease_expires_at,
            approval_id,
            approved_args,
            upstream,
        } => Outcome::Execute(v1::ExecuteOutcome {
            effect_id: id(effect_id),
            attempt,
            lease_expires_at: lease_expires_at.map(timestamp),
            approval_id: id(approval_id),
            approved_args: approved_args.unwrap_or_default(),
            upstream: upstream.map(|upstream| v1::UpstreamCall {
                endpoint: upstream.endpoint,
                org_slug: upstream.org_slug,
            }),
        }),
        InterceptReply::Replay { effect_id, result } => Outcome::Replay(v1::ReplayOutcome {
            effect_id: effect_id.to_string(),
            cached_result: Some(tool_result(result)),
        }),
        InterceptReply::AwaitingApproval { effect_id, approval_id } => {
            Outcome::AwaitingApproval(v1::AwaitingApprovalOutcome {
                effect_id: effect_id.to_string(),
                approval_id: approval_id.to_string(),
            })
        }
    };
    v1::InterceptResponse { outcome: Some(outcome), error: String::new() }
}

fn tool_result(result: StoredResult) -> v1::ToolResult {
    v1::ToolResult {
        success: result.success,
        output: result.output,
        error: result.error,
        duration_ms: result.duration_ms,
    }
}
