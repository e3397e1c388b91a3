//! Reports about effects.

use std::sync::Arc;

use axum::{Json as Body, extract::State};
use serde::{Deserialize, Serialize};
use undolog_core::json::{Node, parse_lossless};
use undolog_proto::v1;
use utoipa::ToSchema;

use super::{
    answer::Errors,
    extract::{Named, Told},
    json::{Json, Object, bytes_of},
    shown::ResolveEffectResponse,
};
use crate::{
    call::{Caller, rpc},
    error::Refused,
    service::Proxy,
};

/// An execution's outcome.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CommitBody {
    /// The session (uuid); else `X-UndoLog-Session-Id` names it.
    #[schema(format = Uuid)]
    session_id: Option<String>,
    /// `{success, output, error, duration_ms}`; any other value is taken whole as the output.
    #[schema(value_type = serde_json::Value)]
    result: Json,
    /// The attempt; left out or 0: the newest.
    attempt: Option<u32>,
}

/// A result in its own form.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope {
    success: bool,
    output: Option<Json>,
    error: Option<String>,
    duration_ms: Option<f64>,
}

/// Another value than a result's own form is taken whole, as the output of a call that succeeded.
/// One that says that the call failed must have the form: it is no output, and must not be guessed.
fn tool_result(value: Json) -> Result<v1::ToolResult, Refused> {
    let own = match serde_json::from_str::<Object<Envelope>>(value.text()) {
        Ok(Object(own)) => own,
        Err(error) => {
            if says_failed(value.text()) {
                return Err(Refused::malformed(format!("result: {error}")));
            }
            return Ok(v1::ToolResult {
                success: true,
                output: value.into_bytes(),
                ..v1::ToolResult::default()
            });
        }
    };
    Ok(v1::ToolResult {
        success: own.success,
        output: bytes_of(own.output),
        error: own.error.unwrap_or_default(),
        // A fraction of a millisecond is nobody's concern, and a negative time is none.
        duration_ms: own.duration_ms.unwrap_or_default() as u64,
    })
}

/// Whether an object says `"success": false` anywhere at its top, also beside another `success`.
fn says_failed(text: &str) -> bool {
    let Ok(Node::Object(members)) = parse_lossless(text.as_bytes()) else { return false };
    members.iter().any(|(key, value)| key.as_str() == "success" && *value == Node::Bool(false))
}

/// A report that was taken.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Reported {
    /// The effect.
    effect_id: String,
    /// `committed` or `failed`, as reported.
    status: &'static str,
}

/// Reports an execution's outcome.
#[utoipa::path(put, path = "/effects/{id}/commit", tag = "calls", request_body = CommitBody,
    params(("id" = String, Path, format = Uuid, description = "The effect")),
    responses((status = 200, body = Reported), Errors))]
pub(super) async fn commit(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Named(effect_id): Named,
    Told(body): Told<CommitBody>,
) -> Result<Body<Reported>, Refused> {
    let attempt = body.attempt.unwrap_or_default();
    let result = tool_result(body.result)?;
    let status = if result.success { "committed" } else { "failed" };
    let request = v1::CommitRequest {
        executor_token: String::new(),
        effect_id: effect_id.clone(),
        org_id: String::new(),
        session_id: caller.session(body.session_id),
        result: Some(result),
        attempt,
    };
    // The newest attempt may be another one by the time of a second try.
    if attempt == 0 {
        rpc!(caller.once: proxy.reports().commit(request))?;
    } else {
        rpc!(caller.again: proxy.reports().commit(request))?;
    }
    Ok(Body(Reported { effect_id, status }))
}

/// What is known of a failed execution.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum FailedEffect {
    /// It may have changed something.
    MaybeApplied,
    /// It changed nothing.
    NotApplied,
    /// The caller cannot know: a time-out, a cancellation, a lost connection.
    Unknown,
}

/// A failed execution.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FailBody {
    /// The session (uuid); else `X-UndoLog-Session-Id` names it.
    #[schema(format = Uuid)]
    session_id: Option<String>,
    /// What went wrong, for people.
    #[serde(default)]
    error: Option<String>,
    /// The attempt; left out or 0: the newest.
    attempt: Option<u32>,
    /// Whether it may have changed something; left out: `maybe_applied`.
    effect: Option<FailedEffect>,
    /// What this failure does to the session, `rollback` or `continue`; left out: the session's
    /// policy.
    on_tool_failure: Option<String>,
}

/// Reports a failed execution. By default the session fails too, and is rolled back.
#[utoipa::path(put, path = "/effects/{id}/fail", tag = "calls", request_body = FailBody,
    params(("id" = String, Path, format = Uuid, description = "The effect")),
    responses((status = 200, body = Reported), Errors))]
pub(super) async fn fail(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Named(effect_id): Named,
    Told(body): Told<FailBody>,
) -> Result<Body<Reported>, Refused> {
    let attempt = body.attempt.unwrap_or_default();
    let effect = match body.effect {
        None | Some(FailedEffect::MaybeApplied) => v1::FailedEffect::MaybeApplied,
        Some(FailedEffect::NotApplied) => v1::FailedEffect::NotApplied,
        Some(FailedEffect::Unknown) => v1::FailedEffect::Unknown,
    };
    let request = v1::FailRequest {
        executor_token: String::new(),
        effect_id: effect_id.clone(),
        org_id: String::new(),
        session_id: caller.session(body.session_id),
        error: body.error.unwrap_or_default(),
        attempt,
        effect: effect.into(),
        on_tool_failure: body.on_tool_failure.unwrap_or_default(),
    };
    if attempt == 0 {
        rpc!(caller.once: proxy.reports().fail(request))?;
    } else {
        rpc!(caller.again: proxy.reports().fail(request))?;
    }
    Ok(Body(Reported { effect_id, status: "failed" }))
}

/// What a human found out about an effect.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResolveBody {
    /// The session (uuid); else `X-UndoLog-Session-Id` names it.
    #[schema(format = Uuid)]
    session_id: Option<String>,
    /// `committed`, `not_applied` or `undone`; of a call that counts as undone, `not_undone`.
    #[serde(rename = "as")]
    outcome: String,
    /// The output, for `committed`.
    #[schema(value_type = Option<serde_json::Value>)]
    result: Option<Json>,
    /// How it was found out.
    note: String,
}

/// Settles an effect of which nobody knows whether it happened, or has one undone anew.
#[utoipa::path(post, path = "/effects/{id}/resolve", tag = "operators", request_body = ResolveBody,
    params(("id" = String, Path, format = Uuid, description = "The effect")),
    responses((status = 200, body = ResolveEffectResponse), Errors))]
pub(super) async fn resolve(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Named(effect_id): Named,
    Told(body): Told<ResolveBody>,
) -> Result<Body<ResolveEffectResponse>, Refused> {
    let request = v1::ResolveEffectRequest {
        org_id: String::new(),
        session_id: caller.session(body.session_id),
        effect_id,
        r#as: body.outcome,
        result: bytes_of(body.result),
        note: body.note,
    };
    let reply = rpc!(caller.once: proxy.operator().resolve_effect(request))?;
    Ok(Body(reply.into()))
}

/// A SAFE tool has no effect to report on.
pub(super) async fn nothing() -> Body<Reported> {
    Body(Reported { effect_id: String::new(), status: "committed" })
}

#[cfg(test)]
mod tests {
    use undolog_core::reason::Reason;

    use super::*;

    fn read(text: &str) -> v1::ToolResult {
        tool_result(serde_json::from_str(text).expect("JSON")).expect("a result")
    }

    #[test]
    fn a_failure_in_another_form_is_refused_and_never_a_success() {
        for odd in [
            r#"{"success":false,"error":"card declined","code":402}"#,
            r#"{"success":false,"error":{"code":402}}"#,
            r#"{"success":false,"duration_ms":"3"}"#,
            r#"{"success":false,"success":false}"#,
            r#"{"success":true,"success":false}"#,
        ] {
            let refused = tool_result(serde_json::from_str(odd).expect("JSON"));
            assert_eq!(refused.expect_err(odd).code, Reason::InvalidArgument.as_str());
        }
    }

    #[test]
    fn a_result_in_its_own_form_is_taken_apart_and_any_other_value_whole() {
        let own =
            read(r#"{"success": false, "output": {"a": 1.0}, "error": "no", "duration_ms": 3.7}"#);
        assert!(!own.success);
        assert_eq!(
            (own.output.as_slice(), own.error.as_str()),
            (br#"{"a": 1.0}"#.as_slice(), "no")
        );
        assert_eq!(own.duration_ms, 3);
        assert_eq!(read(r#"{"success": true, "output": null}"#).output, b"");
        for whole in [
            "null",
            "[1e3]",
            r#"{"success":"yes"}"#,
            r#"{"success":true,"id":7}"#,
            r#"{"output":1}"#,
        ] {
            let result = read(whole);
            assert!(result.success, "{whole}");
            assert_eq!(result.output, whole.as_bytes());
        }
    }
}
