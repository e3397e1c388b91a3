//! Faults around a walk: the database crashes in its middle, and a worker is stopped for longer
//! than its lease and goes on.

use std::time::Duration;

use serde_json::json;
use undolog_tests::{
    World,
    run::WorkerOptions,
    witness::{Act, Script},
    world::ToolSpec,
};

/// Recovery waits for a lease of 30 s and for the reaper.
const LIMIT: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_crashes_in_the_middle_of_a_call_loses_no_answer() {
    let mut world = World::start_private().await;
    world.tool(ToolSpec::compensable("charge")).await;
    let mut agent = world.agent().await;
    for n in 0..3 {
        agent.call("charge", &json!({"n": n})).await;
    }
    let gate = world.witness.hold("/undo/");
    agent.rollback().await.expect("rollback");
    world.witness.wait_for("/undo/", 1, LIMIT).await;
    world.server().crash_and_restart().await;
    gate.open();
    agent.wait_state("compensated", LIMIT).await;
    assert!(world.witness.objects().is_empty());
    assert_eq!(world.witness.calls_to("/undo/").len(), 3, "the answer was written after all");
    world.rollback_check(agent.session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_slept_past_its_lease_settles_nothing() {
    let mut world = World::start().await;
    world.tool(ToolSpec::compensable("charge")).await;
    let mut agent = world.agent().await;
    for n in 0..3 {
        agent.call("charge", &json!({"n": n})).await;
    }
    world.witness.script(Script::once("/undo/", Act::AppliedThenHang));
    agent.rollback().await.expect("rollback");
    world.witness.wait_for("/undo/", 1, LIMIT).await;
    world.workers[0].process.pause();
    world.add_worker(WorkerOptions::default()).await;
    agent.wait_state("compensated", LIMIT).await;
    world.workers[0].process.resume();
    let calls = world.witness.calls_to("/undo/");
    assert_eq!(calls.len(), 4, "one entry was called again, under its key");
    assert_eq!(calls[0].key(), calls[1].key());
    assert!(world.witness.objects().is_empty());
    world.rollback_check(agent.session).await;
}
