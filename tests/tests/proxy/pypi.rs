//! The independent client of the package index, unchanged, lives its life against our proxy.

use serde_json::json;
use undolog_tests::{eventually, python};

use super::bench::Bench;

#[tokio::test(flavor = "multi_thread")]
async fn the_independent_client_works_unchanged() {
    let bench = Bench::start().await;
    let agent = bench.agent().await;
    let ann = bench.client("approver", "ann").await;
    let (agent_key, approver_key) = (agent.key.clone().unwrap(), ann.key.clone().unwrap());
    let witness = bench.world.witness.url("");
    let proxy = bench.proxy.url("");
    let arguments = [&proxy, &agent_key, &approver_key, &witness].map(String::as_str);
    let told = python::run_with_independent_client("independent_client.py", &arguments).await;

    // Executed and committed; a new session object with the same id replays it.
    assert_eq!(told["first"]["id"], "charge-1", "{told}");
    assert_eq!(told["replayed"], told["first"], "{told}");
    assert_eq!(told["runs_after_replay"], json!([1]));
    let committed = format!("/sessions/{}", told["committed_session"].as_str().unwrap());
    let shown = agent.get(&committed).await.is(200).body;
    assert_eq!(shown["session"]["state"], "active");

    // Failed: what the session did is undone.
    assert_eq!(told["raised"], "the card was refused");
    let failed = format!("/sessions/{}", told["failed_session"].as_str().unwrap());
    eventually("the failed session is rolled back", || async {
        let shown = agent.get(&failed).await.is(200).body;
        let state = shown["session"]["state"].as_str().unwrap().to_owned();
        // What the failed call itself did, nobody knows: that is not undone by a guess.
        if state == "compensated" || state == "halted" { Ok(()) } else { Err(shown) }
    })
    .await;
    assert_eq!(bench.world.witness.calls_to("/undo/charge/charge-2").len(), 1);

    // Pending, approved by somebody else, executed once, replayed; and rejected.
    assert_eq!(told["pending_step"], 1);
    assert_eq!(told["while_pending"], "AwaitingApproval");
    assert_eq!(told["approval"], true);
    assert_eq!(told["after_approval"], "Execute");
    assert_eq!(told["approved_replay"][0], "Replay");
    assert_eq!(told["approved_replay"][1]["output"], json!({"sent": "x"}), "{told}");
    assert_eq!(told["rejected"], json!({"status": 409, "code": "APPROVAL_REJECTED"}));
    assert_eq!(told["runs"], json!([1, 2, 3]));
}
