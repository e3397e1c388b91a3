//! Waiting calls: one wins, the others hear the same result, and a caller that left gets nothing.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use serde_json::json;
use tokio::sync::Barrier;
use undolog_proto::v1::{self, InterceptRequest, intercept_response::Outcome};
use undolog_tests::{SOON, eventually};
use uuid::Uuid;

use super::bench::{Bench, ask, call, commit, options, reason};

fn waiting(request: InterceptRequest) -> InterceptRequest {
    InterceptRequest { wait_ms: 20_000, ..request }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_identical_calls_through_two_engines_one_executes_and_all_hear_its_result() {
    let bench = Bench::start().await;
    let admin = bench.admin().await;
    bench.tools(&admin).await;
    let shutdown = tokio_util::sync::CancellationToken::new();
    let second = undolog_engine::serve(options(&bench.db), shutdown.clone()).await.expect("serve");
    let key = bench.org.key(bench.db.pool(), "agent", "agent-1").await;
    let urls = [bench.url.clone(), format!("http://{}", second.grpc_addr())];
    let session = Uuid::new_v4();
    let calls = (0..64).map(|n| {
        let client = undolog_tests::world::Client::new(&urls[n % 2], Some(&key));
        tokio::spawn(async move {
            let outcome = ask(&client, waiting(call(session, 1, "pay", &json!({"a": 1})))).await;
            match outcome.expect("an answer") {
                Outcome::Execute(execute) => {
                    let effect = execute.effect_id;
                    commit(&client, session, &effect, &json!({"id": 7})).await.expect("commit");
                    None
                }
                Outcome::Replay(replay) => Some(replay.cached_result.expect("a result").output),
                other => panic!("{other:?}"),
            }
        })
    });
    let answers = join_all(calls).await.into_iter().map(|answer| answer.expect("no panic"));
    let replays: Vec<Vec<u8>> = answers.flatten().collect();
    assert_eq!(replays.len(), 63, "exactly one executed");
    assert!(replays.iter().all(|output| output == br#"{"id":7}"#));
    shutdown.cancel();
    second.stopped().await.expect("stopped in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_patience_a_second_caller_hears_in_progress() {
    let bench = Bench::start().await;
    let admin = bench.admin().await;
    bench.tools(&admin).await;
    let agent = bench.agent().await;
    let session = Uuid::new_v4();
    ask(&agent, call(session, 1, "pay", &json!({}))).await.expect("a grant");
    assert_eq!(reason(ask(&agent, call(session, 1, "pay", &json!({}))).await), "IN_PROGRESS");
    let short = InterceptRequest { wait_ms: 300, ..call(session, 1, "pay", &json!({})) };
    assert_eq!(reason(ask(&agent, short).await), "IN_PROGRESS");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_approval_ends_with_the_decision() {
    let bench = Bench::start().await;
    let admin = bench.admin().await;
    bench.tools(&admin).await;
    let agent = bench.agent().await;
    let session = Uuid::new_v4();
    let asked = ask(&agent, call(session, 1, "wipe", &json!({}))).await.expect("asked");
    let Outcome::AwaitingApproval(asked) = asked else { panic!("{asked:?}") };
    let patient = tokio::spawn({
        let agent = agent.clone();
        async move { ask(&agent, waiting(call(session, 1, "wipe", &json!({})))).await }
    });
    let metrics = || async {
        let text = undolog_tests::http_get(format!("http://{}/metrics", bench.http)).await;
        let text = text.expect("metrics").text().await.expect("text");
        let is_waiting = text.lines().any(|line| line == "undolog_waiting_calls 1");
        if is_waiting { Ok(()) } else { Err("nobody waits") }
    };
    eventually("the call waits", metrics).await;
    let approver = bench.client("approver", "ann").await;
    let request = v1::ApproveRequest { approval_id: asked.approval_id, ..Default::default() };
    approver.engine().approve(request).await.expect("approve");
    let outcome = patient.await.expect("no panic").expect("an answer");
    assert!(matches!(outcome, Outcome::Execute(_)), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_callers_served_together_those_with_the_token_of_the_grant_hear_of_it() {
    let bench = Bench::start().await;
    let admin = bench.admin().await;
    bench.tools(&admin).await;
    let agent = bench.agent().await;
    let session = Uuid::new_v4();
    let asked = ask(&agent, call(session, 1, "wipe", &json!({}))).await.expect("asked");
    let Outcome::AwaitingApproval(asked) = asked else { panic!("{asked:?}") };
    // Each logical call was sent twice: its first answer got lost.
    let both = Arc::new(Barrier::new(2));
    let calls = (0..12).map(|n| {
        let (agent, both) = (agent.clone(), Arc::clone(&both));
        tokio::spawn(async move {
            let token = format!("token-{}", n / 2);
            let request = call(session, 1, "wipe", &json!({}));
            let request = InterceptRequest { grant_token: token.clone(), ..waiting(request) };
            match ask(&agent, request).await.expect("an answer") {
                Outcome::Execute(granted) => {
                    // Nobody reports before both have heard.
                    let _ = tokio::time::timeout(SOON, both.wait()).await;
                    commit(&agent, session, &granted.effect_id, &json!({"id": 7})).await.unwrap();
                    Some((token, granted.attempt))
                }
                Outcome::Replay(_) => None,
                other => panic!("{other:?}"),
            }
        })
    });
    let calls: Vec<_> = calls.collect();
    let metrics = || async {
        let text = undolog_tests::http_get(format!("http://{}/metrics", bench.http)).await;
        let text = text.expect("metrics").text().await.expect("text");
        let are_waiting = text.lines().any(|line| line == "undolog_waiting_calls 12");
        if are_waiting { Ok(()) } else { Err("not all wait") }
    };
    eventually("the calls wait", metrics).await;
    let approver = bench.client("approver", "ann").await;
    let request = v1::ApproveRequest { approval_id: asked.approval_id, ..Default::default() };
    approver.engine().approve(request).await.expect("approve");
    let answers = join_all(calls).await.into_iter().filter_map(|answer| answer.expect("no panic"));
    let granted: Vec<(String, u32)> = answers.collect();
    assert_eq!(granted.len(), 2, "{granted:?}");
    assert_eq!(granted[0], granted[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_granted_to_a_caller_that_left() {
    let bench = Bench::start().await;
    let admin = bench.admin().await;
    bench.tools(&admin).await;
    let agent = bench.agent().await;
    let session = Uuid::new_v4();
    let asked = ask(&agent, call(session, 1, "wipe", &json!({}))).await.expect("asked");
    let Outcome::AwaitingApproval(asked) = asked else { panic!("{asked:?}") };
    let left = tokio::time::timeout(
        Duration::from_millis(700),
        ask(&agent, waiting(call(session, 1, "wipe", &json!({})))),
    );
    assert!(left.await.is_err(), "the caller left before an answer");
    let approver = bench.client("approver", "ann").await;
    let request = v1::ApproveRequest { approval_id: asked.approval_id, ..Default::default() };
    approver.engine().approve(request).await.expect("approve");
    // A caller that is there gets the one grant.
    let outcome = ask(&agent, call(session, 1, "wipe", &json!({}))).await.expect("an answer");
    assert!(matches!(outcome, Outcome::Execute(_)), "{outcome:?}");
}
