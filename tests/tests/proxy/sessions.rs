//! Sessions and operators over HTTP.

use serde_json::{Value, json};
use undolog_tests::eventually;
use undolog_tests::witness::{Act, Script};
use uuid::Uuid;

use super::bench::{Bench, Http};

/// Asks, runs at the witness and commits.
pub(crate) async fn run(bench: &Bench, agent: &Http, session: Uuid, step: u32) -> String {
    let asked = json!({"session_id": session, "tool_name": "charge", "step_index": step,
        "args": {"n": step}});
    let executed = agent.call(asked).await.is(200).body;
    let effect = executed["effect_id"].as_str().unwrap().to_owned();
    let made = agent
        .client
        .post(bench.world.witness.url("/do/charge"))
        .header("Idempotency-Key", &effect)
        .body("{}")
        .send()
        .await
        .unwrap();
    let output: Value = serde_json::from_str(&made.text().await.unwrap()).unwrap();
    let told = json!({"session_id": session, "attempt": 1,
        "result": {"success": true, "output": output}});
    agent.put(&format!("/effects/{effect}/commit"), told).await.is(200);
    effect
}

pub(crate) async fn wait_state(agent: &Http, session: Uuid, state: &str) -> Value {
    eventually(&format!("{session} is {state}"), || async {
        let shown = agent.get(&format!("/sessions/{session}")).await.is(200).body;
        let now = shown["session"]["state"].as_str().unwrap().to_owned();
        if now == state { Ok(shown) } else { Err(now) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_begins_lives_and_is_completed() {
    let bench = Bench::with_executor().await;
    let agent = bench.agent().await;
    let session = Uuid::new_v4();
    let begin = json!({"session_id": session, "agent_name": "bot", "external_run_id": "run-1",
        "metadata": {"k": 1.0}});
    let begun = agent.post("/sessions", begin.clone()).await.is(200).body;
    assert_eq!(
        (begun["state"].as_str(), begun["existed"].as_bool()),
        (Some("active"), Some(false))
    );
    assert_eq!(agent.post("/sessions", begin).await.is(200).body["existed"], true);
    let via: bool = sqlx::query_scalar("SELECT via_proxy FROM undolog_sessions")
        .fetch_one(bench.world.pool())
        .await
        .unwrap();
    assert!(via, "the journal knows that this session came through a proxy that ticks");
    let ticked: i64 = sqlx::query_scalar("SELECT count(*) FROM undolog_proxies")
        .fetch_one(bench.world.pool())
        .await
        .unwrap();
    assert_eq!(ticked, 1);
    let effect = run(&bench, &agent, session, 1).await;
    let beat = json!({"grants": [{"effect_id": effect, "attempt": 1}]});
    let path = |verb: &str| format!("/sessions/{session}/{verb}");
    let beaten = agent.post(&path("heartbeat"), beat).await.is(200).body;
    assert_eq!(
        (beaten["stop"].as_bool(), beaten["grants"][0]["stop"].as_bool()),
        (Some(false), Some(true))
    );
    let effects = agent.get(&path("effects?page_size=1")).await.is(200).body;
    assert_eq!(effects["effects"][0]["effect_id"], effect.as_str());
    let replay = agent.get(&path("replay")).await.is(200).body;
    assert_eq!(replay["complete"], true);
    assert_eq!(replay["effects"][0]["step_index"], 1);
    assert_eq!(replay["effects"][0]["result"]["success"], true);
    assert_eq!(agent.post(&path("complete"), json!({})).await.is(200).body["state"], "completed");
    let listed = agent.get("/sessions?external_run_id=run-1&state=completed").await.is(200).body;
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_savepoint_is_rolled_back_to_and_the_whole_session_after_it() {
    let bench = Bench::start().await;
    let agent = bench.agent().await;
    let session = agent.begin().await;
    let path = |verb: &str| format!("/sessions/{session}/{verb}");
    run(&bench, &agent, session, 1).await;
    let saved = agent.post(&path("savepoint"), json!({"name": "here"})).await.is(200).body;
    run(&bench, &agent, session, 2).await;
    let both = json!({"to_savepoint": 1, "to_step": 1});
    agent.post(&path("rollback"), both).await.refused(400, "INVALID_ARGUMENT");
    let planned = agent.post(&path("rollback"), json!({"dry_run": true})).await.is(200).body;
    assert_eq!(planned["plan"].as_array().unwrap().len(), 2);
    assert_eq!(planned["rollback_id"], Value::Null);
    let back = json!({"to_savepoint": saved["position"], "reason": "try again"});
    agent.post(&path("rollback"), back).await.is(200);
    wait_state(&agent, session, "active").await;
    assert_eq!(bench.world.witness.calls_to("/undo/charge").len(), 1);
    agent.post(&path("fail"), json!({"reason": "enough"})).await.is(200);
    wait_state(&agent, session, "compensated").await;
    assert_eq!(bench.world.witness.calls_to("/undo/charge").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_is_shown_and_retried() {
    let bench = Bench::start().await;
    let agent = bench.agent().await;
    let session = agent.begin().await;
    run(&bench, &agent, session, 1).await;
    bench.world.witness.script(Script::always("/undo/charge", Act::Status(400)));
    agent.post(&format!("/sessions/{session}/rollback"), json!({})).await.is(200);
    wait_state(&agent, session, "halted").await;
    let op = bench.client("operator", "olga").await;
    let listed = op.get(&format!("/dead-letters?session_id={session}")).await.is(200).body;
    let id = listed["dead_letters"][0]["dead_letter"]["dead_letter_id"].as_str().unwrap();
    let shown = op.get(&format!("/dead-letters/{id}")).await.is(200).body;
    assert_eq!(shown["item"]["tool_name"], "charge");
    bench.world.witness.behave();
    let dry = op.post(&format!("/dead-letters/{id}/retry"), json!({"dry_run": true})).await;
    assert_eq!(dry.is(200).body["matched"], 1);
    op.post(&format!("/dead-letters/{id}/retry"), json!({})).await.is(200);
    wait_state(&agent, session, "compensated").await;
    for (letter, status, code) in [
        (id, 409, "DEAD_LETTER_CLOSED"),
        ("00000000-0000-7000-8000-000000000000", 404, "DEAD_LETTER_NOT_FOUND"),
    ] {
        for (verb, body) in [
            ("skip", json!({"reason": "late"})),
            ("retry", json!({})),
            ("resolve", json!({"note": "by hand"})),
        ] {
            let path = format!("/dead-letters/{letter}/{verb}");
            op.post(&path, body).await.refused(status, code);
        }
    }
    let paused = op.post("/queue/pause", json!({"reason": "lunch"})).await.is(200).body;
    assert_eq!(paused["pauses"][0]["reason"], "lunch");
    op.post("/queue/resume", json!({})).await.is(200);
    op.post("/queue/close-breaker", json!({"compensation_fn": "undo"})).await.is(200);
    op.post("/queue/close-breaker", json!({})).await.refused(400, "INVALID_ARGUMENT");
    assert_eq!(op.get("/queue").await.is(200).body["pauses"], json!([]));
}
