//! The wire is what its `.proto` says: a client made by another language's tools uses it.

use serde_json::Value;
use undolog_tests::world::{Agent, ToolSpec};
use undolog_tests::{SOON, World};

#[tokio::test(flavor = "multi_thread")]
async fn a_generated_python_client_runs_a_whole_session() {
    let world = World::start().await;
    for tool in ["customer", "charge", "email"] {
        world.tool(ToolSpec::compensable(tool)).await;
    }
    let key = world.org.key(world.pool(), "agent", "python").await;
    let engine = world.engines[0].grpc_url().replace("http://", "");
    let heard =
        undolog_tests::python::run("whole_session.py", &[&engine, &key, &world.witness.url("")])
            .await;
    let replay = &heard["replay"];
    assert_eq!(replay["outcome"], "replay");
    assert_eq!(replay["effect_id"], heard["made"][1]["effect_id"]);
    assert_eq!(replay["output"], heard["made"][1]["result"]);

    let session = heard["session"].as_str().unwrap().parse().unwrap();
    let agent = Agent::of_session(world.admin().await, &world.witness, session);
    agent.wait_state("compensated", SOON).await;
    assert!(world.witness.objects().is_empty());
    let undone: Vec<String> = world
        .witness
        .calls_to("/undo/")
        .iter()
        .map(|call| call.last_segment().to_owned())
        .collect();
    let made = heard["made"].as_array().unwrap();
    let ids: Vec<&str> = made.iter().rev().filter_map(|m| m["result"]["id"].as_str()).collect();
    assert_eq!(undone, ids, "LIFO, with the ids of the forward calls' results");
    let first: Value = world.witness.calls_to("/undo/")[2].json();
    assert_eq!(first["args"]["name"], "Ä☃");
    world.rollback_check(session).await;
}
