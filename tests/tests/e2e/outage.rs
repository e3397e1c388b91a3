//! An outage of ours is not a crash of theirs; a crash of theirs is undone.

use std::time::Duration;

use serde_json::json;
use undolog_proto::v1::ListSessionsRequest;
use undolog_tests::World;
use undolog_tests::run::{EngineOptions, WorkerOptions};
use undolog_tests::world::{Agent, ToolSpec};

const HOUR: Duration = Duration::from_secs(3600);
const LEASE: Duration = Duration::from_secs(300);
const SWEPT: Duration = Duration::from_secs(120);

async fn world() -> World {
    let world = World::start_private().await;
    world.tool(ToolSpec::compensable("charge")).await;
    world
}

async fn agents(world: &World, count: usize) -> Vec<Agent> {
    let client = world.client("agent", "agent-1").await;
    let mut agents = Vec::new();
    for n in 0..count {
        let mut agent = Agent::begin(client.clone(), &world.witness).await;
        agent.call("charge", &json!({"n": n})).await;
        agents.push(agent);
    }
    agents
}

async fn in_state(world: &World, state: &str) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM undolog_sessions WHERE state::text = $1")
        .bind(state)
        .fetch_one(world.pool())
        .await
        .unwrap()
}

/// Waits until a sweep for lost sessions has begun and ended: two more slots were claimed.
async fn swept(world: &World) {
    let slot = "SELECT fence FROM undolog_schedules WHERE name = 'sessions'";
    let before: i64 = sqlx::query_scalar(slot).fetch_one(world.pool()).await.unwrap();
    undolog_tests::within(SWEPT, "the sweeps run", || async {
        let now: i64 = sqlx::query_scalar(slot).fetch_one(world.pool()).await.unwrap();
        if now > before + 1 { Ok(()) } else { Err(now) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_hour_without_any_of_us_undoes_nothing() {
    let mut world = world().await;
    let agents = agents(&world, 50).await;
    world.stop_all();
    world.outage(HOUR);
    world.add_engine(EngineOptions::default()).await;
    world.add_worker(WorkerOptions::default()).await;
    swept(&world).await;
    assert_eq!(in_state(&world, "active").await, 50);
    assert!(world.witness.calls_to("/undo/").is_empty());
    assert_eq!(world.witness.objects()["charge"].len(), 50);

    // They go on where they were.
    let client = world.client("agent", "agent-1").await;
    let mut agent = Agent::of_session(client, &world.witness, agents[0].session);
    let request = agent.request_at(7, "charge", &json!({"n": "after"}));
    undolog_tests::world::grant(agent.ask(request).await);
    let _ = &mut agent;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_gone_is_rolled_back_after_its_lease() {
    let mut world = world().await;
    let agents = agents(&world, 3).await;
    world.pass(LEASE / 2).await;
    for agent in &agents[1..] {
        let request = undolog_proto::v1::HeartbeatRequest {
            session_id: agent.session.to_string(),
            ..Default::default()
        };
        agent.client.sessions().heartbeat(request).await.unwrap();
    }
    world.pass(LEASE / 2 + Duration::from_secs(30)).await;
    let shown = agents[0].wait_state("compensated", SWEPT).await;
    assert_eq!(shown.session.unwrap().session_id, agents[0].session.to_string());
    assert_eq!(in_state(&world, "active").await, 2);
    assert_eq!(world.witness.calls_to("/undo/").len(), 1);
    world.rollback_check(agents[0].session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_brake_holds_when_most_sessions_expire_at_once() {
    let mut world = world().await;
    let agents = agents(&world, 50).await;
    world.pass(LEASE / 2).await;
    for agent in &agents[30..] {
        let request = undolog_proto::v1::HeartbeatRequest {
            session_id: agent.session.to_string(),
            ..Default::default()
        };
        agent.client.sessions().heartbeat(request).await.unwrap();
    }
    world.pass(LEASE / 2 + Duration::from_secs(30)).await;
    undolog_tests::within(SWEPT, "the brake is on", || async {
        let brakes: i64 = sqlx::query_scalar("SELECT count(*) FROM undolog_brakes")
            .fetch_one(world.pool())
            .await
            .unwrap();
        if brakes > 0 { Ok(()) } else { Err(brakes) }
    })
    .await;
    swept(&world).await;
    let request = ListSessionsRequest { states: vec!["active".into()], ..Default::default() };
    let admin = world.client("operator", "op").await;
    let listed = admin.sessions().list(request).await.unwrap().into_inner();
    assert_eq!(listed.sessions.len(), 50, "the brake did not hold");
    assert!(world.witness.calls_to("/undo/").is_empty());
}
