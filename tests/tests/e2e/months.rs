//! Thirteen months later, and later still.

use std::time::Duration;

use serde_json::json;
use undolog_proto::v1::BeginRequest;
use undolog_store::migrate::migrate;
use undolog_tests::World;
use undolog_tests::run::EngineOptions;
use undolog_tests::world::{ToolSpec, reason_of};

const DAY: Duration = Duration::from_secs(86_400);

async fn count(world: &World, table: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM {table}");
    sqlx::query_scalar(&sql).fetch_one(world.pool()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn months_run_out_late_and_loudly_and_are_made_again() {
    let mut world = World::start_private().await;
    world.tool(ToolSpec::compensable("charge")).await;
    world.stop_all();

    // Thirteen months after the migration one month lies ahead: that is enough to serve.
    world.outage(DAY * 396);
    world.add_engine(EngineOptions::default()).await;
    let mut agent = world.agent().await;
    agent.call("charge", &json!({"n": 1})).await;

    // Nobody migrated: three months later there is none for what begins now.
    world.pass(DAY * 92).await;
    let (sessions, events) =
        (count(&world, "undolog_sessions").await, count(&world, "undolog_effect_events").await);
    let refused = agent.client.sessions().begin(BeginRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused:?}");
    assert_eq!(reason_of(&refused), "UNAVAILABLE");
    assert!(refused.message().contains("undolog migrate"), "{refused:?}");
    assert_eq!(count(&world, "undolog_sessions").await, sessions);
    assert_eq!(count(&world, "undolog_effect_events").await, events);

    let made = migrate(&world.database.url()).await.unwrap().months_made;
    assert!(made.len() >= 3 * 14, "{made:?}");
    let mut agent = world.agent().await;
    agent.call("charge", &json!({"n": 2})).await;
}
