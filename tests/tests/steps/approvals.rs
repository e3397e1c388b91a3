//! Decisions about irreversible calls: one wins, and it is bound to what was shown.

use serde_json::json;
use undolog_core::Reason;
use undolog_store::intercept::InterceptReply;

use crate::bench::{Bench, awaiting, executed, refused};

#[tokio::test]
async fn of_many_decisions_one_wins() {
    let bench = std::sync::Arc::new(Bench::new().await);
    let (effect, approval) = awaiting(&bench.ask(1, "wipe").await.expect("asked"));
    let mut tasks = Vec::new();
    for n in 0..40 {
        let bench = bench.clone();
        tasks.push(tokio::spawn(async move {
            match n % 2 {
                0 => bench.approve(approval, None).await.map(|_| "approved"),
                _ => bench.reject(approval).await.map(|_| "rejected"),
            }
        }));
    }
    let mut winners = Vec::new();
    for task in tasks {
        match task.await.expect("no panic") {
            Ok(decision) => winners.push(decision),
            other => refused(other, Reason::ApprovalAlreadyResolved),
        }
    }
    assert_eq!(winners.len(), 1, "{winners:?}");
    assert_eq!(bench.effect_state(effect).await, winners[0]);
    assert_eq!(bench.count("undolog_approval_events").await, 1);
    bench.check().await;
}

#[tokio::test]
async fn edited_arguments_reach_only_a_caller_that_accepts_them() {
    let bench = Bench::new().await;
    let (_, approval) = awaiting(&bench.ask(1, "wipe").await.expect("asked"));
    let edited = json!({"step": 1, "only": "b"});
    let approved = bench.approve(approval, Some(&edited)).await.expect("approve");
    assert_eq!(approved.args, br#"{"only":"b","step":1}"#);
    refused(bench.ask(1, "wipe").await, Reason::ArgsModified);
    let mut input = bench.input(1, "wipe", &json!({"step": 1}));
    input.accepts_approved_args = true;
    let reply = bench.send(input).await.expect("a grant");
    match &reply {
        InterceptReply::Execute { approved_args: Some(args), approval_id, .. } => {
            assert_eq!(args, br#"{"only":"b","step":1}"#);
            assert_eq!(*approval_id, Some(approval));
        }
        other => panic!("no edited arguments: {other:?}"),
    }
    let audit = bench
        .text(
            "SELECT e.action::text || e.args_diff::text || e.actor || e.claimed_actor \
             FROM undolog_approval_events e JOIN undolog_approval_requests r \
             USING (approval_request_id) WHERE r.session_id = $1",
        )
        .await;
    assert_eq!(audit, r#"modify[{"op": "add", "path": "/only", "value": "b"}]bossAda"#);
    bench.check().await;
}

#[tokio::test]
async fn a_late_approval_loses_by_the_databases_clock_and_a_reject_still_wins() {
    let bench = Bench::new().await;
    let (_, approval) = awaiting(&bench.ask(1, "wipe").await.expect("asked"));
    sqlx::query("UPDATE undolog_approval_requests SET timeout_at = now() - interval '1 second'")
        .execute(bench.db.pool())
        .await
        .expect("the window is over");
    refused(bench.approve(approval, None).await, Reason::ApprovalTimedOut);
    bench.reject(approval).await.expect("a reject wins while it is pending");
    bench.check().await;
}

#[tokio::test]
async fn an_approver_sees_the_session_but_no_other_organisations_request() {
    let bench = Bench::new().await;
    bench.commit(bench.grant(1, "pay").await, &json!(1)).await.expect("commit");
    let mut input = bench.input(2, "wipe", &json!({"all": true}));
    input.agent_context = br#"{"why":"cleaning\u0000up"}"#.to_vec();
    let (_, approval) = awaiting(&bench.send(input).await.expect("asked"));
    let calls = bench
        .text(
            "SELECT agent_context -> 'calls' -> 0 ->> 'tool_name' FROM undolog_approval_requests \
             WHERE session_id = $1",
        )
        .await;
    assert_eq!(calls, "pay");
    let stranger = undolog_tests::world::Org::create(bench.db.pool(), "evil").await;
    let mut caller = bench.caller(undolog_core::role::Role::Approver, "mallory");
    caller.org_id = stranger.id;
    let step = undolog_store::approvals::Approve {
        caller,
        approval_id: approval,
        actor: String::new(),
        approved_args: None,
        note: String::new(),
    };
    refused(bench.store.run(step).await, Reason::ApprovalNotFound);
    bench.approve(approval, None).await.expect("its own approver");
    executed(&{
        let input = bench.input(2, "wipe", &json!({"all": true}));
        bench.send(input).await.expect("a grant")
    });
    bench.check().await;
}
