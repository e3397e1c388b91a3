//! A forward call that commits after the rollback began is undone too, at each stage.

use serde_json::json;
use undolog_proto::v1::FailedEffect;
use undolog_tests::witness::{Act, Gate, Script};
use undolog_tests::world::{Agent, ToolSpec};
use undolog_tests::{SOON, World};

/// Needs the result; its own call is retried quickly.
fn charge() -> ToolSpec {
    ToolSpec::compensable("charge").retries(2, 50)
}

/// Needs no result: it finds its object by the effect's id.
fn mail() -> ToolSpec {
    ToolSpec::compensable("mail")
        .body("endpoint", json!("/undo/mail"))
        .body("arg_mapping", json!({"id": "{effect_id}"}))
        .body("done_statuses", json!([404]))
        .retries(2, 50)
}

/// The top step failed with an unsure outcome, which starts the rollback; below it is a step whose
/// compensation is held, so that the walk stands still there.
async fn rolled_back(world: &World, top: &str) -> (Agent, String) {
    let mut agent = world.agent().await;
    agent.call("customer", &json!({"n": 1})).await;
    let granted = agent.grant(top, &json!({"n": 2})).await;
    agent.fail(&granted.effect_id, FailedEffect::MaybeApplied).await.unwrap();
    (agent, granted.effect_id)
}

async fn world() -> World {
    let world = World::start().await;
    for tool in [ToolSpec::compensable("customer"), charge(), mail()] {
        world.tool(tool).await;
    }
    world
}

/// Reports, after the failure, that the call had happened all the same.
async fn commit_late(agent: &Agent, tool: &str, effect_id: &str) {
    let result = agent.execute(tool, effect_id, &json!({"n": 2})).await;
    // Evidence is recorded in every state; the caller may still hear what became of its session.
    let _told = agent.commit(effect_id, &result).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_its_entry_is_skipped_it_gets_a_new_one_on_top() {
    let world = world().await;
    let gate = world.witness.hold("/undo/customer");
    let (agent, effect) = rolled_back(&world, "charge").await;
    world.witness.wait_for("/undo/customer", 1, SOON).await;
    commit_late(&agent, "charge", &effect).await;
    gate.open();
    agent.wait_state("compensated", SOON).await;
    assert!(world.witness.objects().is_empty(), "{:?}", world.witness.objects());
    let entries: Vec<(String, String)> = sqlx::query_as(
        "SELECT undo_id::text, state FROM undolog_undo_stack WHERE effect_id::text = $1
         ORDER BY stack_position",
    )
    .bind(&effect)
    .fetch_all(world.pool())
    .await
    .unwrap();
    let states: Vec<&str> = entries.iter().map(|(_, state)| state.as_str()).collect();
    assert_eq!(states, ["skipped", "compensated"]);
    undolog_tests::check::fold_check(world.pool(), agent.session).await;
    undolog_tests::check::settled_check(world.pool(), agent.session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_end_it_reopens_the_session() {
    let world = world().await;
    let (agent, effect) = rolled_back(&world, "charge").await;
    agent.wait_state("compensated", SOON).await;
    commit_late(&agent, "charge", &effect).await;
    undolog_tests::eventually("the late effect is undone", || async {
        let objects = world.witness.objects();
        if objects.is_empty() { Ok(()) } else { Err(objects) }
    })
    .await;
    agent.wait_state("compensated", SOON).await;
    undolog_tests::check::fold_check(world.pool(), agent.session).await;
    undolog_tests::check::settled_check(world.pool(), agent.session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_its_entry_runs_the_result_is_stored_and_the_next_try_uses_it() {
    let world = world().await;
    let late = charge()
        .body("on_missing_result", json!("null"))
        .body("endpoint", json!("/undo/charge"))
        .body("arg_mapping", json!({"id": "{result.id}"}))
        .body("done_statuses", json!([404]))
        .undo(|undo| undo.name = "undo_late".to_owned())
        .with(|tool| tool.name = "late".to_owned());
    world.tool(late).await;
    let gate = Gate::new();
    world.witness.script(Script::once("/undo/charge", Act::HoldThenStatus(gate.clone(), 500)));
    let (agent, effect) = rolled_back(&world, "late").await;
    world.witness.wait_for("/undo/charge", 1, SOON).await;
    let _told = agent.commit(&effect, &json!({"id": "charge-77"})).await;
    gate.open();
    let calls = world.witness.wait_for("/undo/charge", 2, SOON).await;
    assert_eq!(calls[0].json()["id"], serde_json::Value::Null);
    assert_eq!(calls[1].json()["id"], json!("charge-77"));
    agent.wait_state("compensated", SOON).await;
    world.rollback_check(agent.session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn once_compensated_a_human_is_told() {
    let world = world().await;
    let (agent, effect) = rolled_back(&world, "mail").await;
    agent.wait_state("compensated", SOON).await;
    commit_late(&agent, "mail", &effect).await;
    let shown = agent.wait_state("halted", SOON).await;
    assert_eq!(shown.dead_letters.len(), 1, "{:?}", shown.dead_letters);
    assert_eq!(shown.dead_letters[0].reason, "LATE_COMMIT");
    undolog_tests::check::fold_check(world.pool(), agent.session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_for_the_missing_result_is_closed_and_the_walk_goes_on() {
    let world = World::start().await;
    world.tool(ToolSpec::compensable("customer")).await;
    world.tool(charge().body("on_missing_result", json!("dead_letter"))).await;
    let (agent, effect) = rolled_back(&world, "charge").await;
    let shown = agent.wait_state("halted", SOON).await;
    assert_eq!(shown.dead_letters[0].reason, "MISSING_RESULT");
    commit_late(&agent, "charge", &effect).await;
    let shown = agent.wait_state("compensated", SOON).await;
    assert!(shown.dead_letters.iter().all(|letter| !letter.closed_by.is_empty()));
    assert!(world.witness.objects().is_empty());
    undolog_tests::check::fold_check(world.pool(), agent.session).await;
    undolog_tests::check::settled_check(world.pool(), agent.session).await;
}
