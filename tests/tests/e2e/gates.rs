//! Limits hold at the endpoint, and a brown-out costs nothing but time.

use std::time::Duration;

use serde_json::json;
use undolog_proto::v1::{GetCompensationRequest, RegisterCompensationRequest};
use undolog_tests::witness::{Act, Script};
use undolog_tests::world::{Agent, ToolSpec};
use undolog_tests::{SOON, World, size, within};

/// Sessions with one call each, whose rollbacks are asked for.
async fn rolled_back(world: &World, count: u32) -> Vec<Agent> {
    let mut agents = Vec::new();
    for n in 0..count {
        let mut agent = world.agent().await;
        agent.call("charge", &json!({"n": n})).await;
        agents.push(agent);
    }
    for agent in &agents {
        agent.rollback().await.unwrap();
    }
    agents
}

async fn all_compensated(world: &World, agents: &[Agent]) {
    for agent in agents {
        let shown = agent.wait_state("compensated", SOON).await;
        assert!(shown.dead_letters.is_empty(), "{:?}", shown.dead_letters);
    }
    assert!(world.witness.objects().is_empty(), "something was not undone");
}

/// How long an endpoint is too busy; `UNDOLOG_TEST_BROWN_OUT_SECONDS` says otherwise.
fn brown_out_seconds() -> i64 {
    i64::try_from(size("UNDOLOG_TEST_BROWN_OUT_SECONDS", 3)).unwrap()
}

/// How long the endpoint has refused calls so far, by the database's clock, and how many.
async fn refused(world: &World) -> (i64, i64) {
    sqlx::query_as(
        "SELECT COALESCE(extract(epoch FROM max(finished_at) - min(started_at)), 0)::int8, \
         count(*) FROM undolog_undo_attempts WHERE outcome = 'deferred'",
    )
    .fetch_one(world.pool())
    .await
    .expect("look at the calls")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_brown_out_dead_letters_nothing() {
    let world = World::start().await;
    world.tool(ToolSpec::compensable("charge").retries(0, 50)).await;
    world.witness.script(Script::always("/undo/", Act::RetryAfter(429, 1)));
    let agents = rolled_back(&world, 10).await;
    let seconds = brown_out_seconds();
    let patience = SOON + Duration::from_secs(seconds.unsigned_abs());
    within(patience, "the endpoint is busy for long enough", || async {
        let (so_far, _) = refused(&world).await;
        if so_far >= seconds { Ok(()) } else { Err(so_far) }
    })
    .await;
    // Every one has heard it three times: far more often than it may fail.
    within(SOON, "each was deferred three times", || async {
        let sql = "SELECT count(*) FROM (SELECT FROM undolog_undo_attempts \
            WHERE outcome = 'deferred' GROUP BY undo_id HAVING count(*) >= 3) AS often";
        let often: i64 = sqlx::query_scalar(sql).fetch_one(world.pool()).await.unwrap();
        if often == 10 { Ok(()) } else { Err(often) }
    })
    .await;
    let breakers = "SELECT count(*) FROM undolog_route_breakers";
    let breakers: i64 = sqlx::query_scalar(breakers).fetch_one(world.pool()).await.unwrap();
    assert_eq!(breakers, 0, "a host that asks to wait is there");
    world.witness.behave();
    all_compensated(&world, &agents).await;
    let (seconds, calls) = refused(&world).await;
    println!("{calls} calls were refused in {seconds} s; nothing is a dead letter");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_sees_no_more_calls_at_once_than_its_limit() {
    let world = World::start().await;
    world.tool(ToolSpec::compensable("charge")).await;
    let mut registry = world.admin().await.registry();
    let get = GetCompensationRequest { fn_name: "undo_charge".to_owned(), ..Default::default() };
    let mut compensation =
        registry.get_compensation(get).await.unwrap().into_inner().compensation.unwrap();
    compensation.concurrency_max = Some(2);
    let request =
        RegisterCompensationRequest { org_id: String::new(), compensation: Some(compensation) };
    let registered = registry.register_compensation(request).await.unwrap().into_inner();
    assert_eq!(registered.compensation.unwrap().concurrency_max, Some(2));
    let gate = world.witness.hold("/undo/");
    let agents = rolled_back(&world, 6).await;
    within(SOON, "two are called and four wait", || async {
        let sql = "SELECT count(*) FROM undolog_rollbacks WHERE state = 'walking' \
            AND lease_owner IS NULL AND due_at > clock_timestamp() AND fence > 0";
        let waiting: i64 = sqlx::query_scalar(sql).fetch_one(world.pool()).await.unwrap();
        if waiting == 4 { Ok(()) } else { Err(waiting) }
    })
    .await;
    assert_eq!(world.witness.calls_to("/undo/").len(), 2);
    gate.open();
    all_compensated(&world, &agents).await;
    assert_eq!(world.witness.calls_to("/undo/").len(), 6, "something was called twice");
}
