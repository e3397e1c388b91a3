//! A proxy, or the engine behind it, restarted under load.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use undolog_tests::SOON;
use uuid::Uuid;

use super::bench::{Bench, Http};

const WORKERS: usize = 8;
const RESTARTS: usize = 4;

/// What one caller did.
#[derive(Default)]
struct Done {
    committed: BTreeMap<String, Value>,
    refused: Vec<String>,
}

/// Sends until something but a retryable error comes back; `None`: it was refused, or told to stop.
async fn until_answered(
    request: impl Fn() -> reqwest::RequestBuilder,
    done: &mut Done,
    stop: &AtomicBool,
) -> Option<Value> {
    loop {
        // A connection that broke, or an answer that broke off: the same call again hears it.
        if let Ok(response) = request().send().await {
            let status = response.status();
            let text = response.text().await.unwrap_or_default();
            if let Ok(body) = serde_json::from_str::<Value>(&text) {
                if status.is_success() {
                    return Some(body);
                }
                if status.as_u16() != 503 && body["code"] != "IN_PROGRESS" {
                    done.refused.push(format!("{status} {body}"));
                    return None;
                }
            }
        }
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Calls step after step; a tool that runs twice is seen by the witness.
async fn work(agent: Http, witness: String, session: Uuid, stop: Arc<AtomicBool>) -> Done {
    let mut done = Done::default();
    for step in 1.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let token = Uuid::new_v4();
        let asked = json!({"session_id": session, "tool_name": "charge", "step_index": step,
            "args": {"session": session, "step": step}, "grant_token": token})
        .to_string();
        let ask = || agent.request(reqwest::Method::POST, "/mcp/tool_call").body(asked.clone());
        let Some(executed) = until_answered(ask, &mut done, &stop).await else { break };
        assert_eq!(executed["status"], "executed", "{executed}");
        let effect = executed["effect_id"].as_str().unwrap().to_owned();
        // Each run has a key of its own, so that a second run of one effect would be a second call.
        let url = format!("{witness}/do/charge?effect={effect}");
        agent.client.post(url).body(asked.clone()).send().await.unwrap();
        let told = json!({"session_id": session, "attempt": executed["attempt"],
            "result": {"success": true, "output": {"step": step}}})
        .to_string();
        let path = format!("/effects/{effect}/commit");
        let tell = || agent.request(reqwest::Method::PUT, &path).body(told.clone());
        if until_answered(tell, &mut done, &stop).await.is_some() {
            done.committed.insert(effect, json!({"step": step}));
        }
    }
    done
}

#[derive(Clone, Copy)]
enum Restarted {
    Proxy,
    Engine,
}

/// Restarts it, once by SIGKILL and once by SIGTERM.
async fn restart(bench: &mut Bench, what: Restarted, round: usize) {
    let process = match what {
        Restarted::Proxy => &mut bench.proxy.process,
        Restarted::Engine => &mut bench.world.engines[0].process,
    };
    if round.is_multiple_of(2) {
        process.kill9();
    } else {
        process.term();
        process.wait_exit(SOON).await;
    }
    match what {
        Restarted::Proxy => bench.proxy.start_again().await,
        Restarted::Engine => bench.world.engines[0].start_again().await,
    }
}

/// What callers were told is committed is committed, with what they told.
async fn check_committed(bench: &Bench, done: &Done) {
    for (effect, output) in &done.committed {
        let (state, result): (String, Value) = sqlx::query_as(
            "SELECT state::text, result_snapshot FROM undolog_effect_log
             WHERE effect_id = $1::uuid",
        )
        .bind(effect)
        .fetch_one(bench.world.pool())
        .await
        .unwrap();
        assert_eq!((state.as_str(), &result), ("committed", output), "{effect}");
    }
}

async fn under_load(what: Restarted) {
    let mut bench = Bench::with_executor().await;
    let agent = bench.agent().await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut callers = Vec::new();
    for _ in 0..WORKERS {
        let session = agent.begin().await;
        let witness = bench.world.witness.url("");
        callers.push(tokio::spawn(work(agent.clone(), witness, session, Arc::clone(&stop))));
    }
    for round in 0..=RESTARTS {
        let before = bench.world.witness.calls_to("/do/").len();
        bench.world.witness.wait_for("/do/", before + 20, SOON).await;
        if round < RESTARTS {
            restart(&mut bench, what, round).await;
        }
    }
    stop.store(true, Ordering::Relaxed);
    let mut committed = 0;
    for caller in callers {
        let done = caller.await.unwrap();
        assert_eq!(done.refused, Vec::<String>::new(), "only retryable errors");
        check_committed(&bench, &done).await;
        committed += done.committed.len();
    }
    assert!(committed > 50, "only {committed}");
    let mut runs = BTreeMap::new();
    for call in bench.world.witness.calls_to("/do/") {
        *runs.entry(call.path.clone() + &String::from_utf8_lossy(&call.body)).or_insert(0) += 1;
    }
    let twice: Vec<_> = runs.into_iter().filter(|(_, count)| *count > 1).collect();
    assert!(twice.is_empty(), "ran twice: {twice:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_proxy_runs_no_tool_twice_and_loses_no_commit() {
    under_load(Restarted::Proxy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_engine_runs_no_tool_twice_and_loses_no_commit() {
    under_load(Restarted::Engine).await;
}
