//! Reports on a call that a proxy is making.

use serde_json::json;
use undolog_proto::v1::{self, FailedEffect, intercept_response::Outcome};
use undolog_tests::world::Client;
use uuid::Uuid;

use crate::bench::{Bench, ask, call, commit, reason, tool};

const TOKEN: &str = "the proxy's own token";

/// A granted call of an upstream tool: session and effect.
async fn granted(bench: &Bench, agent: &Client, admin: &Client) -> (Uuid, String) {
    bench.compensation(admin, "undo_charge", true).await.expect("the compensation");
    let charge = v1::Tool {
        compensation_ref: "undo_charge".into(),
        upstream: br#"{"endpoint":"https://pay.example/charge"}"#.to_vec(),
        ..tool("charge", "compensable")
    };
    bench.tool(admin, charge).await.expect("the tool");
    let session = Uuid::new_v4();
    let mut request = call(session, 1, "charge", &json!({"amount": 1}));
    request.executor_token = TOKEN.into();
    request.reports_with_token = true;
    match ask(agent, request).await.expect("asked") {
        Outcome::Execute(execute) => (session, execute.effect_id),
        other => panic!("expected a grant, got {other:?}"),
    }
}

async fn fail(
    client: &Client,
    session: Uuid,
    effect_id: &str,
    token: &str,
) -> Result<(), tonic::Status> {
    let request = v1::FailRequest {
        effect_id: effect_id.into(),
        session_id: session.to_string(),
        error: "no".into(),
        effect: FailedEffect::NotApplied.into(),
        executor_token: token.into(),
        ..v1::FailRequest::default()
    };
    client.engine().fail(request).await.map(|_| ())
}

async fn state(bench: &Bench, sql: &'static str) -> String {
    sqlx::query_scalar(sql).fetch_one(bench.db.pool()).await.expect("a state")
}

const EFFECT: &str = "SELECT state::text FROM undolog_effect_log";
const SESSION: &str = "SELECT state::text FROM undolog_sessions";

#[tokio::test(flavor = "multi_thread")]
async fn only_the_proxy_that_makes_a_call_reports_on_it() {
    let bench = Bench::start().await;
    let (admin, agent) = (bench.admin().await, bench.agent().await);
    let (session, effect) = granted(&bench, &agent, &admin).await;
    let executor = bench.client("executor", "another proxy").await;
    for (client, token) in [(&agent, ""), (&agent, "a guess"), (&executor, "")] {
        let refused = fail(client, session, &effect, token).await;
        assert_eq!(reason(refused), "PERMISSION_DENIED");
    }
    let refused = commit(&agent, session, &effect, &json!({"id": "forged"})).await;
    assert_eq!(reason(refused), "PERMISSION_DENIED");
    assert_eq!(state(&bench, EFFECT).await, "executing");
    assert_eq!(state(&bench, SESSION).await, "active");
    let written = "SELECT count(*)::text FROM undolog_effect_events WHERE kind = 'stale_report'";
    assert_eq!(state(&bench, written).await, "3", "each of them is an event");
    let proxy = bench.client("executor", "the proxy").await;
    proxy.engine().commit(with_token(session, &effect)).await.expect("the proxy's report");
    assert_eq!(state(&bench, EFFECT).await, "committed");
    assert_eq!(state(&bench, "SELECT result_by FROM undolog_effect_log").await, "executor");
}

fn with_token(session: Uuid, effect_id: &str) -> v1::CommitRequest {
    v1::CommitRequest {
        effect_id: effect_id.into(),
        session_id: session.to_string(),
        result: Some(v1::ToolResult {
            success: true,
            output: br#"{"id":"ch-1"}"#.to_vec(),
            ..v1::ToolResult::default()
        }),
        executor_token: TOKEN.into(),
        ..v1::CommitRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_asks_as_a_proxy_does_is_taken_for_its_own_word_only() {
    let bench = Bench::start().await;
    let (admin, agent) = (bench.admin().await, bench.agent().await);
    let (session, effect) = granted(&bench, &agent, &admin).await;
    agent.engine().commit(with_token(session, &effect)).await.expect("with its caller's key");
    assert_eq!(state(&bench, EFFECT).await, "committed");
    assert_eq!(state(&bench, "SELECT result_by FROM undolog_effect_log").await, "caller");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_may_report_on_what_a_proxy_left() {
    let bench = Bench::start().await;
    let (admin, agent) = (bench.admin().await, bench.agent().await);
    let (session, effect) = granted(&bench, &agent, &admin).await;
    fail(&admin, session, &effect, "").await.expect("an administrator's word");
    assert_eq!(state(&bench, EFFECT).await, "failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_granted_a_call_itself_reports_as_ever() {
    let bench = Bench::start().await;
    let (admin, agent) = (bench.admin().await, bench.agent().await);
    bench.tools(&admin).await;
    let session = Uuid::new_v4();
    let mut request = call(session, 1, "pay", &json!({}));
    request.executor_token = TOKEN.into();
    request.reports_with_token = true;
    let Outcome::Execute(execute) = ask(&agent, request).await.expect("asked") else {
        panic!("no grant");
    };
    commit(&agent, session, &execute.effect_id, &json!({})).await.expect("no endpoint, no proxy");
    assert_eq!(state(&bench, "SELECT result_by FROM undolog_effect_log").await, "caller");
}
