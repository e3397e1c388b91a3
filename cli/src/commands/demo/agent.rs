//! The agent: what it calls, and how it tells the engine about each call.

use std::time::Duration;

use serde_json::{Value, json};
use undolog_proto::v1::{
    BeginRequest, CommitRequest, ExecuteOutcome, FailRequest, FailedEffect, InterceptRequest,
    ToolCall, ToolResult, intercept_response::Outcome as Intercepted,
};
use uuid::Uuid;

use super::http::{Reply, Service};
use crate::{api::Api, error::CliError};

/// How long the agent keeps asking an engine that does not answer.
const TRIES: u32 = 150;
const PAUSE: Duration = Duration::from_millis(200);

/// One call of the run.
#[derive(Debug)]
pub(super) struct Call {
    /// The tool's registered name.
    pub(super) tool: &'static str,
    /// Where the service takes it.
    pub(super) path: &'static str,
    /// Its arguments, from what earlier calls answered.
    pub(super) args: fn(&[Reply]) -> Value,
}

/// The whole run; the service refuses the last call.
pub(super) const CALLS: [Call; 4] = [
    Call {
        tool: "create_customer",
        path: "/customers",
        args: |_| json!({"name": "Ada", "email": "ada@example.test"}),
    },
    Call {
        tool: "charge_card",
        path: "/charges",
        args: |done| json!({"customer_id": id(done, 0, "customer_id"), "amount_cents": 4900}),
    },
    Call {
        tool: "send_email",
        path: "/emails",
        args: |done| json!({"to": "ada@example.test", "about": id(done, 1, "charge_id")}),
    },
    Call {
        tool: "ship_order",
        path: "/shipments",
        args: |done| json!({"customer_id": id(done, 0, "customer_id"), "item": "lamp"}),
    },
];

fn id(done: &[Reply], index: usize, name: &str) -> Value {
    done.get(index).and_then(|reply| reply.body.get(name)).cloned().unwrap_or(Value::Null)
}

/// An agent with a session.
#[derive(Debug)]
pub(super) struct Agent {
    api: Api,
    service: Service,
    /// Its session.
    pub(super) session_id: String,
}

impl Agent {
    /// Begins a session.
    pub(super) async fn begin(api: Api, service: Service) -> Result<Self, CliError> {
        let request = BeginRequest {
            org_id: api.org(),
            session_id: Uuid::new_v4().to_string(),
            agent_name: "order-desk".to_owned(),
            ..BeginRequest::default()
        };
        let answer = patient(|| async {
            Ok(api.sessions().begin(api.request(request.clone())).await?.into_inner())
        })
        .await?;
        Ok(Self { api, service, session_id: answer.session_id })
    }

    /// Asks whether to run a call. The grant token makes asking again harmless.
    pub(super) async fn intercept(
        &self,
        index: usize,
        call: &Call,
        done: &[Reply],
    ) -> Result<ExecuteOutcome, CliError> {
        let request = InterceptRequest {
            tool_call: Some(ToolCall {
                org_id: self.api.org(),
                session_id: self.session_id.clone(),
                tool_name: call.tool.to_owned(),
                step_index: u32::try_from(index).unwrap_or(u32::MAX),
                args: (call.args)(done).to_string().into_bytes(),
                ..ToolCall::default()
            }),
            grant_token: Uuid::new_v4().to_string(),
            ..InterceptRequest::default()
        };
        let answer = patient(|| async {
            let request = self.api.request(request.clone());
            Ok(self.api.engine().intercept(request).await?.into_inner())
        })
        .await?;
        match answer.outcome {
            Some(Intercepted::Execute(execute)) => Ok(execute),
            other => Err(CliError::Failed(format!("{} was not granted: {other:?}", call.tool))),
        }
    }

    /// Does it.
    pub(super) async fn perform(&self, call: &Call, done: &[Reply]) -> Result<Reply, CliError> {
        self.service.post(call.path, &(call.args)(done)).await
    }

    /// Says how it went: a result to commit, or a failure that changed nothing.
    pub(super) async fn report(
        &self,
        execute: &ExecuteOutcome,
        reply: &Reply,
    ) -> Result<(), CliError> {
        if reply.is_success() {
            self.commit(execute, reply).await
        } else {
            self.fail(execute, reply).await
        }
    }

    async fn commit(&self, execute: &ExecuteOutcome, reply: &Reply) -> Result<(), CliError> {
        let request = CommitRequest {
            effect_id: execute.effect_id.clone(),
            org_id: self.api.org(),
            session_id: self.session_id.clone(),
            result: Some(ToolResult {
                success: true,
                output: reply.body.to_string().into_bytes(),
                error: String::new(),
                duration_ms: reply.duration_ms,
            }),
            attempt: execute.attempt,
            ..CommitRequest::default()
        };
        patient(|| async {
            self.api.engine().commit(self.api.request(request.clone())).await?;
            Ok(())
        })
        .await
    }

    async fn fail(&self, execute: &ExecuteOutcome, reply: &Reply) -> Result<(), CliError> {
        let request = FailRequest {
            effect_id: execute.effect_id.clone(),
            org_id: self.api.org(),
            session_id: self.session_id.clone(),
            error: format!("{} {}", reply.status, reply.body),
            attempt: execute.attempt,
            effect: FailedEffect::NotApplied.into(),
            ..FailRequest::default()
        };
        patient(|| async {
            self.api.engine().fail(self.api.request(request.clone())).await?;
            Ok(())
        })
        .await
    }
}

/// Asks again while the engine is away: every call of the wire may be repeated.
pub(super) async fn patient<T, F, Fut>(mut ask: F) -> Result<T, CliError>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, CliError>>,
{
    let mut tries = 0;
    loop {
        match ask().await {
            Err(CliError::Unavailable(_)) if tries < TRIES => {
                tries += 1;
                tokio::time::sleep(PAUSE).await;
            }
            answer => return answer,
        }
    }
}
