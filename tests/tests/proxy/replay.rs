//! A client that resumes hears all stored results in one answer, or an error, never a part that
//! looks whole.

use serde_json::{Value, json};
use undolog_tests::wait::eventually;
use uuid::Uuid;

use super::{
    bench::{Bench, Http},
    sessions::{run, wait_state},
};

/// A granted and committed call; its effect.
async fn commit(agent: &Http, session: Uuid, step: u32, output: &Value) -> String {
    let asked = json!({"session_id": session, "tool_name": "charge", "step_index": step,
        "args": {"session": session, "step": step}});
    let executed = agent.call(asked).await.is(200).body;
    let effect = executed["effect_id"].as_str().unwrap().to_owned();
    let told = json!({"session_id": session, "result": {"success": true, "output": output}});
    agent.put(&format!("/effects/{effect}/commit"), told).await.is(200);
    effect
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_write_snapshots_and_a_replay_tells_what_still_stands() {
    let bench = Bench::start().await;
    let agent = bench.agent().await;
    let session = agent.begin().await;
    for step in 1..=110 {
        run(&bench, &agent, session, step).await;
    }
    let snapshots = "SELECT up_to_step FROM undolog_session_snapshots WHERE session_id = $1 \
                     ORDER BY up_to_step";
    eventually("a worker has written two snapshots", async || {
        let steps: Vec<i32> = sqlx::query_scalar(snapshots)
            .bind(session)
            .fetch_all(bench.world.pool())
            .await
            .unwrap();
        if steps == [50, 100] { Ok(()) } else { Err(steps) }
    })
    .await;
    let path = |verb: &str| format!("/sessions/{session}/{verb}");
    let steps = async || {
        let replay = agent.get(&path("replay")).await.is(200).body;
        assert_eq!(replay["complete"], true);
        let effects = replay["effects"].as_array().unwrap().clone();
        assert!(effects.iter().all(|effect| effect["result"]["output"]["id"].is_string()));
        effects.iter().map(|effect| effect["step_index"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(steps().await, (1..=110).collect::<Vec<_>>(), "in the order of commits");
    agent.post(&path("rollback"), json!({"to_step": 95})).await.is(200);
    wait_state(&agent, session, "active").await;
    assert_eq!(steps().await, (1..=95).collect::<Vec<_>>());
    agent.post(&path("rollback"), json!({})).await.is(200);
    let refused = agent.get(&path("replay")).await;
    assert!(refused.code().starts_with("SESSION_"), "{}", refused.text);
    refused.documented();
    assert_eq!(refused.status.as_u16(), 409);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_breaks_off_is_no_answer() {
    let mut bench = Bench::start().await;
    let agent = bench.agent().await;
    let session = agent.begin().await;
    // More than the sockets on the way can hold, so that the answer is still under way.
    for step in 1..=12 {
        let long = json!("x".repeat(3_500_000));
        commit(&agent, session, step, &long).await;
    }
    let path = format!("/sessions/{session}/replay");
    let mut response = agent.request(reqwest::Method::GET, &path).send().await.unwrap();
    assert_eq!(response.status(), 200);
    response.chunk().await.unwrap().unwrap();
    bench.world.engines[0].process.kill9();
    let broken = loop {
        match response.chunk().await {
            Ok(Some(_)) => {}
            Ok(None) => break false,
            Err(_) => break true,
        }
    };
    assert!(broken, "a part of the answer looked whole");
}
