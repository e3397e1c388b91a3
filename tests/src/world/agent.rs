//! An agent: it asks before each call, runs it against the witness, and reports.

use std::time::Duration;

use serde_json::Value;
use tonic::Status;
use tonic_types::StatusExt;
use undolog_proto::v1::intercept_response::Outcome;
use undolog_proto::v1::{
    BeginRequest, CommitRequest, ExecuteOutcome, FailRequest, FailedEffect, GetSessionRequest,
    GetSessionResponse, InterceptRequest, RollbackRequest, RollbackResponse, ToolCall, ToolResult,
};
use uuid::Uuid;

use super::client::Client;
use crate::wait::within;
use crate::witness::Witness;

/// One session's agent.
#[derive(Clone, Debug)]
pub struct Agent {
    /// Its client.
    pub client: Client,
    /// Its session.
    pub session: Uuid,
    witness_url: String,
    http: reqwest::Client,
    next_step: u32,
}

/// A call that was run and committed.
#[derive(Clone, Debug)]
pub struct Made {
    /// The effect.
    pub effect_id: String,
    /// What the witness answered.
    pub result: Value,
}

impl Agent {
    /// Begins a session with the shortest lease.
    pub async fn begin(client: Client, witness: &Witness) -> Self {
        Self::begin_with(client, witness, BeginRequest::default()).await
    }

    /// Begins a session.
    pub async fn begin_with(client: Client, witness: &Witness, request: BeginRequest) -> Self {
        let begun = client.sessions().begin(request).await.expect("begin a session").into_inner();
        let session = begun.session_id.parse().expect("a session id");
        Self::of_session(client, witness, session)
    }

    /// An agent of a session that exists already, or that Intercept makes.
    pub fn of_session(client: Client, witness: &Witness, session: Uuid) -> Self {
        let http = reqwest::Client::builder().no_proxy().build().expect("a client");
        Self { client, session, witness_url: witness.url(""), http, next_step: 1 }
    }

    /// A request for a new step.
    pub fn request(&mut self, tool: &str, args: &Value) -> InterceptRequest {
        let step = self.next_step;
        self.next_step += 1;
        self.request_at(step, tool, args)
    }

    /// A request for this step.
    pub fn request_at(&self, step_index: u32, tool: &str, args: &Value) -> InterceptRequest {
        let call = ToolCall {
            session_id: self.session.to_string(),
            tool_name: tool.to_owned(),
            step_index,
            args: args.to_string().into_bytes(),
            ..ToolCall::default()
        };
        InterceptRequest { tool_call: Some(call), ..InterceptRequest::default() }
    }

    /// Asks for a call.
    pub async fn ask(&self, request: InterceptRequest) -> Result<Outcome, Status> {
        let answer = self.client.engine().intercept(request).await?.into_inner();
        assert_eq!(answer.error, "", "refusals are gRPC statuses");
        Ok(answer.outcome.expect("an outcome"))
    }

    /// Asks for a new step and expects the grant.
    pub async fn grant(&mut self, tool: &str, args: &Value) -> ExecuteOutcome {
        let request = self.request(tool, args);
        grant(self.ask(request).await)
    }

    /// Runs a granted call at the witness.
    pub async fn execute(&self, tool: &str, effect_id: &str, args: &Value) -> Value {
        let answer = self
            .http
            .post(format!("{}/do/{tool}", self.witness_url))
            .header("Idempotency-Key", effect_id)
            .body(args.to_string())
            .send()
            .await
            .and_then(reqwest::Response::error_for_status)
            .expect("the forward call");
        let bytes = answer.bytes().await.expect("the forward call's answer");
        serde_json::from_slice(&bytes).expect("the witness answers JSON")
    }

    /// Reports success.
    pub async fn commit(&self, effect_id: &str, result: &Value) -> Result<(), Status> {
        let result = ToolResult {
            success: true,
            output: result.to_string().into_bytes(),
            error: String::new(),
            duration_ms: 5,
        };
        let request = CommitRequest {
            effect_id: effect_id.to_owned(),
            session_id: self.session.to_string(),
            result: Some(result),
            ..CommitRequest::default()
        };
        self.client.engine().commit(request).await.map(|_| ())
    }

    /// Reports failure.
    pub async fn fail(&self, effect_id: &str, effect: FailedEffect) -> Result<(), Status> {
        let request = FailRequest {
            effect_id: effect_id.to_owned(),
            session_id: self.session.to_string(),
            error: "the tool failed".to_owned(),
            effect: effect.into(),
            ..FailRequest::default()
        };
        self.client.engine().fail(request).await.map(|_| ())
    }

    /// A whole step: ask, run, report success.
    pub async fn call(&mut self, tool: &str, args: &Value) -> Made {
        let grant = self.grant(tool, args).await;
        let result = self.execute(tool, &grant.effect_id, args).await;
        self.commit(&grant.effect_id, &result).await.expect("commit");
        Made { effect_id: grant.effect_id, result }
    }

    /// A step that is granted and then fails, which by default rolls the session back.
    pub async fn call_that_fails(&mut self, tool: &str, args: &Value, effect: FailedEffect) {
        let grant = self.grant(tool, args).await;
        self.fail(&grant.effect_id, effect).await.expect("fail");
    }

    /// Asks for the rollback of the whole session.
    pub async fn rollback(&self) -> Result<RollbackResponse, Status> {
        let request = RollbackRequest {
            session_id: self.session.to_string(),
            reason: "the test says so".to_owned(),
            ..RollbackRequest::default()
        };
        Ok(self.client.sessions().rollback(request).await?.into_inner())
    }

    /// The session with its undo stack, rollbacks and dead letters.
    pub async fn show(&self) -> Result<GetSessionResponse, Status> {
        let request =
            GetSessionRequest { session_id: self.session.to_string(), ..Default::default() };
        Ok(self.client.sessions().get(request).await?.into_inner())
    }

    /// Waits until the session is in this state; also while the engine is away.
    pub async fn wait_state(&self, state: &str, limit: Duration) -> GetSessionResponse {
        within(limit, &format!("session {} is {state}", self.session), || async {
            let shown = self.show().await.map_err(|status| status.to_string())?;
            let now = shown.session.as_ref().map_or("", |session| session.state.as_str());
            if now == state { Ok(shown) } else { Err(format!("{now}: {:?}", shown.dead_letters)) }
        })
        .await
    }
}

/// Expects Execute.
pub fn grant(outcome: Result<Outcome, Status>) -> ExecuteOutcome {
    match outcome {
        Ok(Outcome::Execute(grant)) => grant,
        other => panic!("expected a grant, got {other:?}"),
    }
}

/// The `ErrorInfo` reason of a refusal, for example `IN_PROGRESS`.
pub fn reason_of(status: &Status) -> String {
    status.get_details_error_info().map(|info| info.reason).unwrap_or_default()
}
