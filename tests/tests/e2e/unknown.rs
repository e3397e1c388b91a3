//! A grant without a report: nobody knows whether the call happened.

use std::time::Duration;

use serde_json::{Value, json};
use undolog_proto::v1::{BeginRequest, FailedEffect, GrantRef, HeartbeatRequest};
use undolog_tests::world::{Agent, ToolSpec, reason_of};
use undolog_tests::{SOON, World};

/// Longer than the grants' lease below, shorter than a session's.
const A_WHILE: Duration = Duration::from_secs(120);

/// A tool whose grants are soon lost.
fn tool(name: &str) -> ToolSpec {
    ToolSpec::compensable(name).with(|tool| tool.grant_lease_ms = 60_000)
}

async fn effect_state(world: &World, effect_id: &str) -> String {
    sqlx::query_scalar("SELECT state::text FROM undolog_effect_log WHERE effect_id::text = $1")
        .bind(effect_id)
        .fetch_one(world.pool())
        .await
        .unwrap()
}

async fn wait_effect(world: &World, effect_id: &str, state: &str) {
    undolog_tests::within(Duration::from_secs(90), &format!("the effect is {state}"), || async {
        let now = effect_state(world, effect_id).await;
        if now == state { Ok(()) } else { Err(now) }
    })
    .await;
}

async fn holding_agent(world: &World) -> Agent {
    let request = BeginRequest { on_unknown: "hold".to_owned(), ..BeginRequest::default() };
    let client = world.client("agent", "agent-1").await;
    Agent::begin_with(client, &world.witness, request).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_grant_is_unknown_and_never_granted_again() {
    let mut world = World::start_private().await;
    world.tool(tool("charge")).await;
    let mut agent = holding_agent(&world).await;
    let request = agent.request("charge", &json!({"n": 1}));
    let granted = undolog_tests::world::grant(agent.ask(request.clone()).await);
    world.pass(A_WHILE).await;
    // The next Intercept sees it by itself; the sweep would, too.
    let refused = agent.ask(request.clone()).await.unwrap_err();
    assert_eq!(reason_of(&refused), "OUTCOME_UNKNOWN");
    assert_eq!(effect_state(&world, &granted.effect_id).await, "unknown");

    // A heartbeat of the current attempt brings it back.
    let beat = HeartbeatRequest {
        session_id: agent.session.to_string(),
        grants: vec![GrantRef { effect_id: granted.effect_id.clone(), attempt: 1 }],
        ..HeartbeatRequest::default()
    };
    agent.client.sessions().heartbeat(beat).await.unwrap();
    assert_eq!(effect_state(&world, &granted.effect_id).await, "executing");
    world.pass(A_WHILE).await;
    wait_effect(&world, &granted.effect_id, "unknown").await;

    // Evidence wins.
    agent.commit(&granted.effect_id, &json!({"id": "charge-1"})).await.unwrap();
    assert_eq!(effect_state(&world, &granted.effect_id).await, "committed");
    undolog_tests::check::fold_check(world.pool(), agent.session).await;
}

/// One committed step, then a lost one, then the rollback.
async fn lost_on_top(world: &mut World, lost: ToolSpec) -> (Agent, String) {
    world.tool(tool("customer")).await;
    let name = lost.name.clone();
    world.tool(lost).await;
    let mut agent = holding_agent(world).await;
    agent.call("customer", &json!({"n": 1})).await;
    let granted = agent.grant(&name, &json!({"n": 2})).await;
    world.pass(A_WHILE).await;
    wait_effect(world, &granted.effect_id, "unknown").await;
    agent.rollback().await.unwrap();
    // It may still run: the walk waits one more lease.
    assert!(world.witness.calls_to("/undo/").is_empty(), "an unknown effect was not waited for");
    world.pass(A_WHILE).await;
    (agent, granted.effect_id)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_effect_is_compensated_when_its_compensation_needs_no_result() {
    let mut world = World::start_private().await;
    let lost = tool("charge").body("endpoint", json!("/undo/charge/{effect_id}"));
    world.witness.script(undolog_tests::witness::Script::always(
        "/undo/charge",
        undolog_tests::witness::Act::Answer(200, Vec::new(), "{}".to_owned()),
    ));
    let (agent, effect) = lost_on_top(&mut world, lost).await;
    agent.wait_state("compensated", SOON).await;
    let calls = world.witness.calls_to("/undo/");
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0].last_segment(), effect);
    world.rollback_check(agent.session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_effect_without_the_needed_result_waits_for_a_human() {
    let mut world = World::start_private().await;
    let (agent, effect) = lost_on_top(&mut world, tool("charge")).await;
    let shown = agent.wait_state("halted", SOON).await;
    assert_eq!(shown.dead_letters.len(), 1);
    assert_eq!(shown.dead_letters[0].reason, "MISSING_RESULT");
    assert_eq!(shown.dead_letters[0].effect_id, effect);
    // It does not stop the walk.
    let calls = world.witness.calls_to("/undo/");
    assert_eq!(calls.len(), 1);
    assert!(calls[0].path.starts_with("/undo/customer/"));
    world.rollback_check(agent.session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_registration_decides_about_unknown_and_missing() {
    for (key, value, state, reason) in [
        ("on_unknown", json!("dead_letter"), "halted", "OUTCOME_UNKNOWN"),
        ("on_missing_result", json!("skip"), "compensated", ""),
        ("on_missing_result", json!("dead_letter"), "halted", "MISSING_RESULT"),
    ] {
        let mut world = World::start_private().await;
        let (agent, _) = lost_on_top(&mut world, tool("charge").body(key, value.clone())).await;
        let shown = agent.wait_state(state, SOON).await;
        let reasons: Vec<&str> = shown.dead_letters.iter().map(|d| d.reason.as_str()).collect();
        assert_eq!(reasons.join(","), reason, "{key} = {value}");
        undolog_tests::check::fold_check(world.pool(), agent.session).await;
        // A dead letter for an outcome that nobody knows stops the walk; the others do not.
        let undone = world.witness.calls_to("/undo/customer/").len();
        assert_eq!(undone, usize::from(reason != "OUTCOME_UNKNOWN"), "{key} = {value}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_result_can_be_null() {
    let mut world = World::start_private().await;
    let lost = tool("charge")
        .body("endpoint", json!("/undo/charge"))
        .body("arg_mapping", json!({"id": "{result.id}"}))
        .body("on_missing_result", json!("null"))
        .body("done_statuses", json!([404]));
    let (agent, _) = lost_on_top(&mut world, lost).await;
    agent.wait_state("compensated", SOON).await;
    assert_eq!(world.witness.calls_to("/undo/charge")[0].json()["id"], Value::Null);
    world.rollback_check(agent.session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reported_failure_without_result_is_skipped_as_unverified() {
    let world = World::start().await;
    world.tool(ToolSpec::compensable("customer")).await;
    world.tool(ToolSpec::compensable("charge")).await;
    let mut agent = world.agent().await;
    agent.call("customer", &json!({"n": 1})).await;
    agent.call_that_fails("charge", &json!({"n": 2}), FailedEffect::MaybeApplied).await;
    let shown = agent.wait_state("compensated", SOON).await;
    assert_eq!(shown.undo_stack[0].state, "skipped");
    assert_eq!(shown.undo_stack[0].skip_reason, "failed_without_result");
    assert_eq!(shown.rollbacks[0].unverified_count, 1);
    let calls = world.witness.calls_to("/undo/");
    assert_eq!(calls.len(), 1);
    world.rollback_check(agent.session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_irreversible_effect_waits_for_a_human_and_the_rest_is_undone() {
    let mut world = World::start_private().await;
    world.tool(ToolSpec::irreversible("wire").with(|tool| tool.grant_lease_ms = 60_000)).await;
    world.tool(tool("customer")).await;
    let mut agent = holding_agent(&world).await;
    agent.call("customer", &json!({"n": 1})).await;
    let request = agent.request("wire", &json!({"n": 2}));
    let outcome = agent.ask(request.clone()).await.unwrap();
    let undolog_proto::v1::intercept_response::Outcome::AwaitingApproval(waiting) = outcome else {
        panic!("{outcome:?}")
    };
    let approve = undolog_proto::v1::ApproveRequest {
        approval_id: waiting.approval_id,
        ..Default::default()
    };
    world.client("approver", "boss").await.engine().approve(approve).await.unwrap();
    let granted = undolog_tests::world::grant(agent.ask(request).await);
    world.pass(A_WHILE).await;
    wait_effect(&world, &granted.effect_id, "unknown").await;
    agent.rollback().await.unwrap();
    world.pass(A_WHILE).await;
    let shown = agent.wait_state("halted", SOON).await;
    assert_eq!(shown.dead_letters.len(), 1);
    assert_eq!(shown.dead_letters[0].reason, "OUTCOME_UNKNOWN");
    assert_eq!(world.witness.calls_to("/undo/").len(), 1);
    world.rollback_check(agent.session).await;

    // A late report settles it: it is residue, and nothing is left to a human.
    let told = agent.commit(&granted.effect_id, &json!({"sent": true})).await.unwrap_err();
    assert_eq!(reason_of(&told), "SESSION_HALTED");
    let shown = agent.wait_state("compensated", SOON).await;
    assert_eq!(shown.session.unwrap().residue_count, 1);
    world.rollback_check(agent.session).await;
}
