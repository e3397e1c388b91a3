//! Arguments, results and texts are never lost or changed.

use serde_json::{Value, json};
use undolog_proto::v1::intercept_response::Outcome;
use undolog_proto::v1::{CommitRequest, ListEffectsRequest, ToolResult};
use undolog_tests::witness::{Act, Script};
use undolog_tests::world::{Agent, ToolSpec, grant, reason_of};
use undolog_tests::{SOON, World};

/// Asks with these very bytes.
async fn ask_raw(agent: &mut Agent, args: &str) -> Result<Outcome, tonic::Status> {
    let mut request = agent.request("charge", &Value::Null);
    request.tool_call.as_mut().unwrap().args = args.as_bytes().to_vec();
    agent.ask(request).await
}

async fn commit_raw(agent: &Agent, effect_id: &str, output: &str) {
    let result =
        ToolResult { success: true, output: output.as_bytes().to_vec(), ..ToolResult::default() };
    let request = CommitRequest {
        effect_id: effect_id.to_owned(),
        session_id: agent.session.to_string(),
        result: Some(result),
        ..CommitRequest::default()
    };
    agent.client.engine().commit(request).await.unwrap();
}

async fn world() -> World {
    let world = World::start().await;
    let tool = ToolSpec::compensable("charge")
        .body("endpoint", json!("/undo/charge"))
        .body("arg_mapping", json!({"args": "{args}", "id": "{result.id}"}))
        .body("done_statuses", json!([404]));
    world.tool(tool).await;
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_look_alike_are_two_calls() {
    let world = world().await;
    let mut agent = world.agent().await;
    let first = grant(ask_raw(&mut agent, r#"{"a\":1,\"b":2}"#).await);
    let second = grant(ask_raw(&mut agent, r#"{"a":1,"b":2}"#).await);
    assert_ne!(first.effect_id, second.effect_id);
    let request = ListEffectsRequest {
        session_id: agent.session.to_string(),
        ..ListEffectsRequest::default()
    };
    let listed = agent.client.sessions().list_effects(request).await.unwrap().into_inner();
    assert_eq!(listed.effects.len(), 2);
    assert_ne!(listed.effects[0].call_signature, listed.effects[1].call_signature);
}

#[tokio::test(flavor = "multi_thread")]
async fn nul_bytes_and_exact_numbers_come_back_as_they_were() {
    let world = world().await;
    let mut agent = world.agent().await;
    let args = r#"{"text":"a\u0000b","n":1.10,"big":12345678901234567.25}"#;
    let granted = grant(ask_raw(&mut agent, args).await);
    let output = r#"{"id":98765432109876543210,"note":"c\u0000d","x":1e400}"#;
    commit_raw(&agent, &granted.effect_id, output).await;
    let request = ListEffectsRequest {
        session_id: agent.session.to_string(),
        ..ListEffectsRequest::default()
    };
    let listed = agent.client.sessions().list_effects(request).await.unwrap().into_inner();
    let result = String::from_utf8(listed.effects[0].result.clone()).unwrap();
    for kept in ["98765432109876543210", "c\\u0000d", "1e400"] {
        assert!(result.contains(kept), "{kept} is lost in {result}");
    }
    let shown = String::from_utf8(listed.effects[0].args.clone()).unwrap();
    assert!(shown.contains("a\\u0000b"), "{shown}");

    agent.rollback().await.unwrap();
    agent.wait_state("compensated", SOON).await;
    let call = world.witness.calls_to("/undo/").remove(0);
    let body = String::from_utf8(call.body.clone()).unwrap();
    assert!(body.contains("98765432109876543210"), "the number was changed: {body}");
    assert!(body.contains("a\\u0000b"), "the text was changed: {body}");
    world.rollback_check(agent.session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_have_no_one_meaning_are_refused_and_leave_no_row() {
    let world = world().await;
    let mut agent = world.agent().await;
    for args in [r#"{"a":1,"a":2}"#, r#"{"a":1e400}"#, r#"{"a":18446744073709551616}"#, "{", "\"x"]
    {
        let refused = ask_raw(&mut agent, args).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{args}: {refused:?}");
        assert!(!reason_of(&refused).is_empty(), "{args}: {refused:?}");
    }
    let effects: i64 = sqlx::query_scalar("SELECT count(*) FROM undolog_effect_log")
        .fetch_one(world.pool())
        .await
        .unwrap();
    assert_eq!(effects, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nul_in_an_endpoints_error_wedges_nothing() {
    let world = World::start().await;
    world.tool(ToolSpec::compensable("charge").retries(0, 10)).await;
    let mut agent = world.agent().await;
    agent.call("charge", &json!({"n": 1})).await;
    let text = "bad\u{0}thing".to_owned();
    world.witness.script(Script::always("/undo/", Act::Answer(400, Vec::new(), text)));
    agent.rollback().await.unwrap();
    let shown = agent.wait_state("halted", SOON).await;
    assert_eq!(shown.dead_letters.len(), 1);
    let kept: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM undolog_undo_attempts WHERE response = 'bad\\000thing'::bytea",
    )
    .fetch_one(world.pool())
    .await
    .unwrap();
    assert_eq!(kept, 1, "the answer's bytes are not kept");
    world.rollback_check(agent.session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nul_in_a_reason_fails_and_rolls_back_all_the_same() {
    use undolog_proto::v1::{FailSessionRequest, RollbackRequest};
    let world = World::start().await;
    world.tool(ToolSpec::compensable("charge")).await;
    let mut failed = world.agent().await;
    failed.call("charge", &json!({"n": 1})).await;
    let reason = "gave\u{0}up".to_owned();
    let request = FailSessionRequest {
        session_id: failed.session.to_string(),
        reason: reason.clone(),
        rollback: true,
        ..FailSessionRequest::default()
    };
    failed.client.sessions().fail_session(request).await.unwrap();
    let mut rolled_back = world.agent().await;
    rolled_back.call("charge", &json!({"n": 2})).await;
    let request = RollbackRequest {
        session_id: rolled_back.session.to_string(),
        reason: reason.clone(),
        ..RollbackRequest::default()
    };
    rolled_back.client.sessions().rollback(request).await.unwrap();
    for agent in [failed, rolled_back] {
        let shown = agent.wait_state("compensated", SOON).await;
        assert_eq!(shown.rollbacks[0].reason, reason, "the reason is kept as it was given");
    }
}
