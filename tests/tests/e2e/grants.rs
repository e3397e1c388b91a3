//! Grants: lost replies, second attempts, heartbeats.

use serde_json::json;
use undolog_proto::v1::intercept_response::Outcome;
use undolog_proto::v1::{BeginRequest, FailedEffect, GrantRef, HeartbeatRequest};
use undolog_tests::World;
use undolog_tests::world::{Agent, ToolSpec, grant, reason_of};

async fn world() -> World {
    let world = World::start().await;
    world.tool(ToolSpec::compensable("charge")).await;
    world.tool(ToolSpec::compensable("upsert").with(|tool| tool.idempotent = true)).await;
    world
}

/// An agent whose failures do not end its session.
async fn patient_agent(world: &World) -> Agent {
    let request =
        BeginRequest { on_tool_failure: "continue".to_owned(), ..BeginRequest::default() };
    let client = world.client("agent", "agent-1").await;
    Agent::begin_with(client, &world.witness, request).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_is_harmless_with_the_same_grant_token() {
    let world = world().await;
    let mut agent = world.agent().await;
    let mut request = agent.request("charge", &json!({"n": 1}));
    request.grant_token = "token-1".to_owned();
    let first = grant(agent.ask(request.clone()).await);
    let again = grant(agent.ask(request.clone()).await);
    assert_eq!((first.effect_id, first.attempt), (again.effect_id.clone(), again.attempt));
    for token in ["token-2", ""] {
        request.grant_token = token.to_owned();
        let refused = agent.ask(request.clone()).await.unwrap_err();
        assert_eq!(reason_of(&refused), "IN_PROGRESS", "token {token:?}");
    }
    agent.commit(&again.effect_id, &json!({"id": "charge-1"})).await.unwrap();
    let replayed = agent.ask(request).await.unwrap();
    assert!(matches!(replayed, Outcome::Replay(_)), "{replayed:?}");
    undolog_tests::check::fold_check(world.pool(), agent.session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_attempt_needs_certainty_or_an_idempotent_tool() {
    let world = world().await;
    let mut agent = patient_agent(&world).await;

    let request = agent.request("charge", &json!({"n": 1}));
    let first = grant(agent.ask(request.clone()).await);
    agent.fail(&first.effect_id, FailedEffect::NotApplied).await.unwrap();
    let second = grant(agent.ask(request.clone()).await);
    assert_eq!(second.effect_id, first.effect_id);
    assert_eq!((first.attempt, second.attempt), (1, 2));

    agent.fail(&second.effect_id, FailedEffect::MaybeApplied).await.unwrap();
    let refused = agent.ask(request).await.unwrap_err();
    assert_eq!(reason_of(&refused), "OUTCOME_UNKNOWN");

    let request = agent.request("upsert", &json!({"n": 1}));
    let first = grant(agent.ask(request.clone()).await);
    agent.fail(&first.effect_id, FailedEffect::Unknown).await.unwrap();
    let second = grant(agent.ask(request).await);
    assert_eq!((second.effect_id, second.attempt), (first.effect_id, 2));
    undolog_tests::check::fold_check(world.pool(), agent.session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_repeated_is_fine_and_another_result_is_refused() {
    let world = world().await;
    let mut agent = world.agent().await;
    let grant = agent.grant("charge", &json!({"n": 1})).await;
    let result = json!({"id": "charge-1", "x": 1});
    agent.commit(&grant.effect_id, &result).await.unwrap();
    agent.commit(&grant.effect_id, &json!({"x": 1, "id": "charge-1"})).await.unwrap();
    let refused = agent.commit(&grant.effect_id, &json!({"id": "other"})).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::AlreadyExists);
    assert_eq!(reason_of(&refused), "RESULT_CONFLICT");
    let refused = agent.fail(&grant.effect_id, FailedEffect::NotApplied).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::AlreadyExists);
    assert_eq!(agent.show().await.unwrap().session.unwrap().state, "active");
    undolog_tests::check::fold_check(world.pool(), agent.session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_says_when_to_stop() {
    let world = world().await;
    let mut agent = world.agent().await;
    let live = agent.grant("charge", &json!({"n": 1})).await;
    let request = HeartbeatRequest {
        session_id: agent.session.to_string(),
        grants: vec![GrantRef { effect_id: live.effect_id.clone(), attempt: 1 }],
        ..HeartbeatRequest::default()
    };
    let mut sessions = agent.client.sessions();
    let answer = sessions.heartbeat(request.clone()).await.unwrap().into_inner();
    assert_eq!((answer.state.as_str(), answer.stop), ("active", false));
    assert_eq!((answer.grants[0].state.as_str(), answer.grants[0].stop), ("executing", false));
    agent.rollback().await.unwrap();
    let answer = sessions.heartbeat(request).await.unwrap().into_inner();
    assert_eq!((answer.state.as_str(), answer.stop), ("compensating", true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_safe_call_leaves_no_trace_and_an_unknown_tool_is_refused() {
    let world = world().await;
    world.tool(ToolSpec::safe("read")).await;
    let mut agent = world.agent().await;
    let granted = agent.grant("read", &json!({})).await;
    assert_eq!(granted.effect_id, "");
    agent.commit("", &json!({})).await.unwrap();
    let request = agent.request("nobody_registered_this", &json!({}));
    let refused = agent.ask(request).await.unwrap_err();
    assert_eq!(reason_of(&refused), "TOOL_NOT_REGISTERED");
    let effects: i64 = sqlx::query_scalar("SELECT count(*) FROM undolog_effect_log")
        .fetch_one(world.pool())
        .await
        .unwrap();
    assert_eq!(effects, 0);
}
