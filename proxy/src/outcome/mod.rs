//! From a tool call to its outcome, whatever face the call came through.

mod output;
mod report;
mod upstream;

use std::{sync::Arc, time::Duration};

use tokio::task::JoinHandle;
use undolog_core::reason::Reason;
use undolog_proto::v1::{self, intercept_response};
use uuid::Uuid;

use crate::{
    call::{Caller, rpc},
    error::Refused,
    service::Proxy,
};
use upstream::Granted;

/// How long a caller waits for an endpoint; the call itself goes on, and is heard by asking again.
const PATIENCE: Duration = Duration::from_secs(25);

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

/// A call as it was begun.
#[derive(Debug)]
pub(crate) enum Begun {
    /// There is nothing to wait for.
    Decided(Outcome),
    /// This proxy runs it.
    Running { effect_id: String, task: JoinHandle<Result<Outcome, Refused>> },
}

/// Asks the engine for a call and, when its tool has an endpoint, runs it.
pub(crate) async fn decide(
    proxy: &Arc<Proxy>,
    caller: &Caller,
    request: v1::InterceptRequest,
) -> Result<Outcome, Refused> {
    let begun = if request.wait_ms > 0 {
        // A caller that waits may go away: then nothing is granted to it. A proxy that stops has no
        // time to wait: the caller asks another one.
        tokio::select! {
            biased;
            begun = begin(proxy, caller, request) => begun?,
            () = proxy.stop.cancelled() => {
                return Err(Refused::because(Reason::Unavailable, "this proxy stops; ask again"));
            }
        }
    } else {
        // A granted call is run even when its caller goes away before it hears of the grant.
        let (proxy, caller) = (Arc::clone(proxy), caller.clone());
        let tracker = proxy.tasks.clone();
        let asking = tracker.spawn(async move { begin(&proxy, &caller, request).await });
        asking.await.unwrap_or_else(|error| Err(broken(&error)))?
    };
    match begun {
        Begun::Decided(outcome) => Ok(outcome),
        Begun::Running { effect_id, task } => match tokio::time::timeout(PATIENCE, task).await {
            Ok(ended) => ended.unwrap_or_else(|error| Err(broken(&error))),
            Err(_) => {
                let still = "the call still runs; ask again for its result";
                let mut refused = Refused::because(Reason::InProgress, still);
                refused.ids.insert("effect_id".to_owned(), effect_id);
                Err(refused)
            }
        },
    }
}

/// Asks the engine for a call. One that this proxy runs goes on by itself, whoever listens.
pub(crate) async fn begin(
    proxy: &Arc<Proxy>,
    caller: &Caller,
    mut request: v1::InterceptRequest,
) -> Result<Begun, Refused> {
    let (session_id, args) = match &request.tool_call {
        Some(call) => (call.session_id.clone(), call.args.clone()),
        None => (String::new(), Vec::new()),
    };
    // With tokens of its own, a call whose answer was lost on the way can be asked for again.
    let executor_token = Uuid::new_v4().to_string();
    request.executor_token.clone_from(&executor_token);
    request.reports_with_token = true;
    if request.grant_token.is_empty() {
        request.grant_token = Uuid::new_v4().to_string();
    }
    let answer = if request.wait_ms > 0 {
        rpc!(caller.again: proxy.waits().intercept(request))?
    } else {
        rpc!(caller.again: proxy.engine().intercept(request))?
    };
    let answer = answer.outcome;
    let answer =
        answer.ok_or_else(|| Refused::because(Reason::Internal, "the engine answered nothing"))?;
    Ok(match answer {
        intercept_response::Outcome::Execute(mut grant) => match grant.upstream.take() {
            None => Begun::Decided(Outcome::Execute(grant)),
            Some(upstream) => {
                let effect_id = grant.effect_id.clone();
                let granted = Granted { session_id, grant, upstream, args, executor_token };
                let running = upstream::run(Arc::clone(proxy), caller.clone(), granted);
                Begun::Running { effect_id, task: proxy.tasks.spawn(running) }
            }
        },
        intercept_response::Outcome::Replay(replay) => Begun::Decided(Outcome::Result {
            effect_id: replay.effect_id,
            result: replay.cached_result.unwrap_or_default(),
            is_fresh: false,
        }),
        intercept_response::Outcome::AwaitingApproval(asked) => Begun::Decided(Outcome::Pending {
            effect_id: asked.effect_id,
            approval_id: asked.approval_id,
        }),
    })
}

fn broken(error: &tokio::task::JoinError) -> Refused {
    tracing::error!(%error, "a call's task broke");
    Refused::because(Reason::Internal, "the call's task broke; its outcome is found out by asking")
}
