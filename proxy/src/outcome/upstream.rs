//! Runs a granted call at its tool's endpoint, once, and reports what became of it.

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use undolog_core::{
    json::{Node, parse_lossless},
    limits::{KEPT_RESPONSE_BYTES, RESULT_BYTES_MAX},
    reason::Reason,
    retry::CallOutcome,
    upstream::Upstream,
};
use undolog_egress::{Answer, Call, Reached};
use undolog_proto::v1::{self, FailedEffect};
use uuid::Uuid;

use super::{
    Outcome,
    output::output,
    report::{Undelivered, left_out},
};
use crate::{
    call::{Caller, rpc},
    error::Refused,
    service::Proxy,
};

/// How often a grant is renewed while its call runs.
const RENEW_EVERY: Duration = Duration::from_secs(5);
/// How long a call that an endpoint turns away is tried, from the first time on.
const TURNED_AWAY_FOR: Duration = Duration::from_secs(30);
/// The pause between two of these tries when the endpoint names none, and the shortest one.
const TURNED_AWAY_PAUSE: Duration = Duration::from_secs(5);
const TURNED_AWAY_PAUSE_MIN: Duration = Duration::from_secs(1);

/// A granted call and where it is made.
#[derive(Debug)]
pub(super) struct Granted {
    pub(super) session_id: String,
    pub(super) grant: v1::ExecuteOutcome,
    pub(super) upstream: v1::UpstreamCall,
    /// The proposed arguments; the grant holds the approved ones when they differ.
    pub(super) args: Vec<u8>,
    /// What proves that a report is this proxy's.
    pub(super) executor_token: String,
}

/// What the endpoint's answer means for the effect.
#[derive(Debug, Clone, PartialEq)]
struct Verdict {
    output: Vec<u8>,
    error: String,
    failed: Option<FailedEffect>,
}

impl Verdict {
    fn failed(effect: FailedEffect, error: impl Into<String>) -> Self {
        Self { output: Vec::new(), error: error.into(), failed: Some(effect) }
    }
}

/// Makes the call and reports it. Nothing that happens to the caller stops this.
pub(super) async fn run(
    proxy: Arc<Proxy>,
    caller: Caller,
    granted: Granted,
) -> Result<Outcome, Refused> {
    let began = Instant::now();
    let verdict = verdict(&proxy, &caller, &granted).await;
    let took = began.elapsed();
    observe(&granted, &verdict, took);
    let effect_id = granted.grant.effect_id.clone();
    let result = v1::ToolResult {
        success: verdict.failed.is_none(),
        output: verdict.output,
        error: verdict.error,
        duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
    };
    // A SAFE tool has nothing to report.
    if !effect_id.is_empty() {
        report(&proxy, &caller, &granted, &result, verdict.failed).await?;
    }
    if verdict.failed == Some(FailedEffect::Unknown) {
        let mut refused = Refused::because(Reason::OutcomeUnknown, result.error);
        refused.ids.insert("effect_id".to_owned(), effect_id);
        return Err(refused);
    }
    Ok(Outcome::Result { effect_id, result, is_fresh: true })
}

async fn verdict(proxy: &Proxy, caller: &Caller, granted: &Granted) -> Verdict {
    let (call, upstream) = match prepare(granted) {
        Ok(prepared) => prepared,
        Err(error) => return Verdict::failed(FailedEffect::NotApplied, error),
    };
    let calling = call_patiently(proxy, &call, &upstream);
    tokio::select! {
        biased;
        answer = calling => judge(answer, &upstream),
        never = renew(proxy, caller, granted) => match never {},
        () = proxy.give_up.cancelled() => {
            Verdict::failed(FailedEffect::Unknown, "the proxy stopped before the endpoint answered")
        }
    }
}

/// Makes the call. An endpoint that turns it away for now, and so has not done it, is asked again
/// when it says so, for a while: a moment's load at an endpoint should not fail a session.
async fn call_patiently(proxy: &Proxy, call: &Call, upstream: &Upstream) -> Answer {
    let began = Instant::now();
    loop {
        let answer = proxy.egress.call_whole(call, RESULT_BYTES_MAX).await;
        let Some(pause) = turned_away(&answer, upstream) else { return answer };
        if began.elapsed() + pause > TURNED_AWAY_FOR {
            return answer;
        }
        metrics::counter!("undolog_upstream_deferrals_total").increment(1);
        tokio::time::sleep(pause).await;
    }
}

/// How long to wait before the same call, when the answer says that nothing was done and when to
/// come back.
fn turned_away(answer: &Answer, upstream: &Upstream) -> Option<Duration> {
    let CallOutcome::Defer { .. } = answer.outcome else { return None };
    let is_certain = answer.reached == Reached::Answered
        && answer.status.is_some_and(|status| upstream.is_not_applied(status));
    let asked = answer.retry_after_ms.map_or(TURNED_AWAY_PAUSE, Duration::from_millis);
    is_certain.then(|| asked.max(TURNED_AWAY_PAUSE_MIN))
}

fn prepare(granted: &Granted) -> Result<(Call, Upstream), String> {
    let endpoint = parse_lossless(&granted.upstream.endpoint).map_err(|e| e.to_string())?;
    let upstream = Upstream::parse(&endpoint).map_err(|error| error.to_string())?;
    let args = if granted.grant.approved_args.is_empty() {
        &granted.args
    } else {
        &granted.grant.approved_args
    };
    let args = if args.is_empty() {
        Node::empty_object()
    } else {
        parse_lossless(args).map_err(|error| error.to_string())?
    };
    let id = |text: &str| Uuid::parse_str(text).map_err(|error| error.to_string());
    let session_id = id(&granted.session_id)?;
    let effect_id = match granted.grant.effect_id.as_str() {
        // Each run of a SAFE tool is a call of its own.
        "" => Uuid::new_v4(),
        text => id(text)?,
    };
    let rendered =
        upstream.render(&args, session_id, effect_id).map_err(|error| error.to_string())?;
    let call = Call {
        org_slug: granted.upstream.org_slug.clone(),
        rendered,
        rules: upstream.rules().clone(),
    };
    Ok((call, upstream))
}

/// What is known of the world after the call.
fn judge(answer: Answer, upstream: &Upstream) -> Verdict {
    let error = answer.error.unwrap_or_default();
    match (answer.reached, answer.status) {
        (Reached::Nothing, _) => Verdict::failed(FailedEffect::NotApplied, error),
        (Reached::Perhaps, _) | (Reached::Answered, None) => {
            Verdict::failed(FailedEffect::Unknown, error)
        }
        (Reached::Answered, Some(_)) if answer.outcome == CallOutcome::Done => {
            // A part of an answer is no answer.
            if answer.response_truncated {
                let v1::ToolResult { output, error, .. } = left_out(0);
                return Verdict { output, error, failed: None };
            }
            let content_type = answer.content_type.as_deref().unwrap_or_default();
            let output = output(answer.response, content_type);
            Verdict { output, error: String::new(), failed: None }
        }
        (Reached::Answered, Some(status)) if upstream.is_not_applied(status) => {
            Verdict::failed(FailedEffect::NotApplied, error)
        }
        (Reached::Answered, Some(_)) => Verdict::failed(FailedEffect::MaybeApplied, error),
    }
}

/// Renews the grant for as long as its call runs. Whatever the engine says, a call that was sent
/// cannot be taken back.
async fn renew(proxy: &Proxy, caller: &Caller, granted: &Granted) -> Infallible {
    if granted.grant.effect_id.is_empty() {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(RENEW_EVERY).await;
        let request = v1::HeartbeatRequest {
            org_id: String::new(),
            session_id: granted.session_id.clone(),
            grants: vec![v1::GrantRef {
                effect_id: granted.grant.effect_id.clone(),
                attempt: granted.grant.attempt,
            }],
        };
        if let Err(refused) = rpc!(caller.once: proxy.heartbeats().heartbeat(request)) {
            tracing::debug!(code = %refused.code, "a grant was not renewed");
        }
    }
}

/// Delivers the report: the same one, until the engine has taken it. A caller whose key ended
/// during the call does not undo what was done: then one of this proxy's own keys reports it.
async fn report(
    proxy: &Proxy,
    caller: &Caller,
    granted: &Granted,
    result: &v1::ToolResult,
    failed: Option<FailedEffect>,
) -> Result<(), Refused> {
    let mut undelivered = Undelivered::new(result.clone());
    let reporters: Vec<&Caller> = std::iter::once(caller).chain(&proxy.executors).collect();
    loop {
        let reporter = reporters[undelivered.refused_keys() % reporters.len()];
        let told = match failed {
            None => commit(proxy, reporter, granted, undelivered.result()).await,
            Some(effect) => fail(proxy, reporter, granted, &result.error, effect).await,
        };
        let Err(refused) = told else { return Ok(()) };
        let Some(pause) = undelivered.pause(&refused, reporters.len()) else {
            tracing::warn!(
                effect.id = %granted.grant.effect_id, code = %refused.code,
                "an outcome was not taken"
            );
            return Err(refused);
        };
        if proxy.give_up.is_cancelled() {
            return Err(refused);
        }
        metrics::counter!("undolog_proxy_report_retries_total").increment(1);
        tokio::time::sleep(pause).await;
    }
}

async fn commit(
    proxy: &Proxy,
    caller: &Caller,
    granted: &Granted,
    result: &v1::ToolResult,
) -> Result<(), Refused> {
    let request = v1::CommitRequest {
        effect_id: granted.grant.effect_id.clone(),
        org_id: String::new(),
        session_id: granted.session_id.clone(),
        result: Some(result.clone()),
        attempt: granted.grant.attempt,
        executor_token: granted.executor_token.clone(),
    };
    rpc!(caller.again: proxy.reports().commit(request)).map(|_| ())
}

async fn fail(
    proxy: &Proxy,
    caller: &Caller,
    granted: &Granted,
    error: &str,
    effect: FailedEffect,
) -> Result<(), Refused> {
    let mut cut = error.len().min(KEPT_RESPONSE_BYTES);
    while !error.is_char_boundary(cut) {
        cut -= 1;
    }
    let request = v1::FailRequest {
        effect_id: granted.grant.effect_id.clone(),
        org_id: String::new(),
        session_id: granted.session_id.clone(),
        error: error[..cut].to_owned(),
        attempt: granted.grant.attempt,
        effect: effect.into(),
        executor_token: granted.executor_token.clone(),
        on_tool_failure: String::new(),
    };
    rpc!(caller.again: proxy.reports().fail(request)).map(|_| ())
}

fn observe(granted: &Granted, verdict: &Verdict, took: Duration) {
    let outcome = match verdict.failed {
        None => "done",
        Some(FailedEffect::NotApplied) => "not_applied",
        Some(FailedEffect::Unknown) => "unknown",
        Some(_) => "maybe_applied",
    };
    metrics::counter!("undolog_upstream_calls_total", "outcome" => outcome).increment(1);
    metrics::histogram!("undolog_upstream_duration_seconds").record(took.as_secs_f64());
    tracing::info!(
        session.id = %granted.session_id,
        effect.id = %granted.grant.effect_id,
        attempt = granted.grant.attempt,
        outcome,
        duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        "an endpoint was called"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream() -> Upstream {
        let text = br#"{"endpoint":"https://x.example/","not_applied_statuses":[404]}"#;
        Upstream::parse(&parse_lossless(text).expect("JSON")).expect("an endpoint")
    }

    fn answer(reached: Reached, outcome: CallOutcome, status: Option<u16>, body: &[u8]) -> Answer {
        Answer {
            outcome,
            reached,
            status,
            error: Some("why".to_owned()),
            response: body.to_vec(),
            response_truncated: false,
            retry_after_ms: None,
            content_type: None,
        }
    }

    #[test]
    fn what_nobody_can_know_is_unknown() {
        use FailedEffect::{MaybeApplied, NotApplied, Unknown};
        let (done, permanent, retry) =
            (CallOutcome::Done, CallOutcome::Permanent, CallOutcome::Retry);
        for (reached, outcome, status, expected) in [
            (Reached::Nothing, retry, None, Some(NotApplied)),
            (Reached::Nothing, permanent, None, Some(NotApplied)),
            (Reached::Perhaps, retry, None, Some(Unknown)),
            (Reached::Perhaps, retry, Some(200), Some(Unknown)),
            (Reached::Answered, done, Some(201), None),
            (Reached::Answered, permanent, Some(404), Some(NotApplied)),
            (Reached::Answered, CallOutcome::Defer { after_ms: 1 }, Some(429), Some(NotApplied)),
            (Reached::Answered, CallOutcome::Defer { after_ms: 1 }, Some(503), Some(MaybeApplied)),
            (Reached::Answered, permanent, Some(400), Some(MaybeApplied)),
            (Reached::Answered, permanent, Some(302), Some(MaybeApplied)),
            (Reached::Answered, retry, Some(500), Some(MaybeApplied)),
        ] {
            let verdict = judge(answer(reached, outcome, status, b"{}"), &upstream());
            assert_eq!(verdict.failed, expected, "{reached:?} {outcome:?} {status:?}");
        }
    }
}
