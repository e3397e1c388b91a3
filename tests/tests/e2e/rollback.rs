//! A failed session is undone by real HTTP calls, last call first.

use std::time::Duration;

use serde_json::json;
use undolog_proto::v1::intercept_response::Outcome;
use undolog_proto::v1::rollback_request::Scope;
use undolog_proto::v1::{CompleteRequest, FailedEffect, RollbackRequest, SavepointRequest};
use undolog_tests::world::{ToolSpec, reason_of};
use undolog_tests::{SOON, World, size};

const TOOLS: [&str; 3] = ["customer", "charge", "email"];

async fn world() -> World {
    let world = World::start().await;
    for tool in TOOLS {
        world.tool(ToolSpec::compensable(tool)).await;
    }
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_undoes_everything_last_call_first() {
    let world = world().await;
    let mut agent = world.agent().await;
    for (tool, n) in TOOLS.iter().zip(1..) {
        agent.call(tool, &json!({"n": n})).await;
    }
    assert_eq!(world.witness.objects().len(), 3);
    agent.call_that_fails("charge", &json!({"n": 9}), FailedEffect::NotApplied).await;
    let shown = agent.wait_state("compensated", SOON).await;
    assert_eq!(shown.rollbacks.len(), 1);
    assert!(world.witness.objects().is_empty(), "{:?}", world.witness.objects());
    let calls = world.witness.calls_to("/undo/");
    let paths: Vec<&str> = calls.iter().map(|call| call.path.as_str()).collect();
    assert_eq!(
        paths,
        ["/undo/email/email-1", "/undo/charge/charge-1", "/undo/customer/customer-1"]
    );
    assert_eq!(calls[0].json()["args"], json!({"n": 3}));
    world.rollback_check(agent.session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completed_session_is_undone_on_request() {
    let world = world().await;
    let mut agent = world.agent().await;
    agent.call("charge", &json!({"n": 1})).await;
    let request =
        CompleteRequest { session_id: agent.session.to_string(), ..CompleteRequest::default() };
    agent.client.sessions().complete(request).await.unwrap();
    assert_eq!(agent.show().await.unwrap().session.unwrap().state, "completed");
    agent.rollback().await.unwrap();
    agent.wait_state("compensated", SOON).await;
    world.rollback_check(agent.session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_stack_goes_straight_to_compensated() {
    let world = world().await;
    let agent = world.agent().await;
    agent.rollback().await.unwrap();
    agent.wait_state("compensated", SOON).await;
    world.rollback_check(agent.session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_shows_the_walk_and_changes_nothing() {
    let world = world().await;
    let mut agent = world.agent().await;
    agent.call("customer", &json!({"n": 1})).await;
    agent.call("charge", &json!({"n": 2})).await;
    let request = RollbackRequest {
        session_id: agent.session.to_string(),
        dry_run: true,
        ..RollbackRequest::default()
    };
    let plan = agent.client.sessions().rollback(request).await.unwrap().into_inner();
    assert_eq!(plan.rollback_id, "");
    let urls: Vec<&str> = plan.plan.iter().map(|undo| undo.url.as_str()).collect();
    assert_eq!(
        urls,
        [
            world.witness.url("/undo/charge/charge-1"),
            world.witness.url("/undo/customer/customer-1")
        ]
    );
    assert!(world.witness.calls_to("/undo/").is_empty());
    assert_eq!(agent.show().await.unwrap().session.unwrap().state, "active");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partial_rollback_undoes_what_lies_above_the_savepoint() {
    let world = world().await;
    let mut agent = world.agent().await;
    agent.call("customer", &json!({"n": 1})).await;
    let savepoint = SavepointRequest {
        session_id: agent.session.to_string(),
        name: "before the charge".to_owned(),
        ..SavepointRequest::default()
    };
    let position =
        agent.client.sessions().savepoint(savepoint).await.unwrap().into_inner().position;
    agent.call("charge", &json!({"n": 2})).await;
    agent.call("email", &json!({"n": 3})).await;
    let request = RollbackRequest {
        session_id: agent.session.to_string(),
        scope: Some(Scope::ToSavepoint(position)),
        ..RollbackRequest::default()
    };
    agent.client.sessions().rollback(request).await.unwrap();
    world.witness.wait_for_answers("/undo/", 2, SOON).await;
    agent.wait_state("active", SOON).await;
    let left: Vec<String> = world.witness.objects().into_keys().collect();
    assert_eq!(left, ["customer"]);
    // An undone step does not run again; a new one does.
    let again = agent.ask(agent.request_at(2, "charge", &json!({"n": 2}))).await.unwrap_err();
    assert_eq!(reason_of(&again), "ALREADY_UNDONE");
    agent.call("charge", &json!({"n": 4})).await;
    agent.rollback().await.unwrap();
    agent.wait_state("compensated", SOON).await;
    assert!(world.witness.objects().is_empty());
    undolog_tests::check::fold_check(world.pool(), agent.session).await;
    undolog_tests::check::settled_check(world.pool(), agent.session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_waits_for_live_grants_and_undoes_what_they_did() {
    let world = world().await;
    let mut agent = world.agent().await;
    agent.call("customer", &json!({"n": 1})).await;
    let live = agent.grant("charge", &json!({"n": 2})).await;
    agent.rollback().await.unwrap();
    let refused = agent.ask(agent.request_at(9, "email", &json!({}))).await.unwrap_err();
    assert_eq!(reason_of(&refused), "SESSION_COMPENSATING");
    // Another session's rollback, asked for later, is over: the worker has had its chance.
    let mut other = world.agent().await;
    other.call("email", &json!({"n": 0})).await;
    other.rollback().await.unwrap();
    other.wait_state("compensated", SOON).await;
    // This walk has not begun: the grant is live. Its report makes the rollback due.
    assert!(world.witness.calls_to("/undo/customer").is_empty(), "a live grant was not waited for");
    let result = agent.execute("charge", &live.effect_id, &json!({"n": 2})).await;
    // It is recorded, and the caller hears what became of its session.
    let told = agent.commit(&live.effect_id, &result).await.unwrap_err();
    assert_eq!(reason_of(&told), "SESSION_COMPENSATING");
    agent.wait_state("compensated", SOON).await;
    assert!(world.witness.objects().is_empty());
    let calls = world.witness.calls_to("/undo/c");
    assert_eq!(calls[0].path, "/undo/charge/charge-1");
    undolog_tests::check::rollback_check(world.pool(), agent.session, &calls).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_voids_pending_approvals_and_counts_residue() {
    let world = world().await;
    world.tool(ToolSpec::irreversible("wire")).await;
    let mut agent = world.agent().await;
    agent.call("customer", &json!({"n": 1})).await;
    let asked = agent.request("wire", &json!({"to": "x"}));
    let outcome = agent.ask(asked.clone()).await.unwrap();
    let Outcome::AwaitingApproval(waiting) = outcome else { panic!("{outcome:?}") };
    assert_eq!(agent.show().await.unwrap().session.unwrap().state, "awaiting_approval");
    agent.rollback().await.unwrap();
    agent.wait_state("compensated", SOON).await;
    let (state, by): (String, String) = sqlx::query_as(
        "SELECT state::text, resolved_by FROM undolog_approval_requests
         WHERE approval_request_id::text = $1",
    )
    .bind(&waiting.approval_id)
    .fetch_one(world.pool())
    .await
    .unwrap();
    assert_eq!((state.as_str(), by.as_str()), ("rejected", "system:rollback"));
    world.rollback_check(agent.session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approved_call_runs_once_and_is_residue() {
    let world = world().await;
    world.tool(ToolSpec::irreversible("wire")).await;
    let mut agent = world.agent().await;
    let asked = agent.request("wire", &json!({"to": "x"}));
    let outcome = agent.ask(asked.clone()).await.unwrap();
    let Outcome::AwaitingApproval(waiting) = outcome else { panic!("{outcome:?}") };
    let approver = world.client("approver", "boss").await;
    let request = undolog_proto::v1::ApproveRequest {
        approval_id: waiting.approval_id.clone(),
        actor: "boss".to_owned(),
        ..Default::default()
    };
    let approved = approver.engine().approve(request).await.unwrap().into_inner();
    assert_eq!(approved.tool_name, "wire");
    let grant = undolog_tests::world::grant(agent.ask(asked.clone()).await);
    let second = agent.ask(asked).await.unwrap_err();
    assert_eq!(reason_of(&second), "IN_PROGRESS");
    agent.commit(&grant.effect_id, &json!({"sent": true})).await.unwrap();
    agent.rollback().await.unwrap();
    let shown = agent.wait_state("compensated", SOON).await;
    assert_eq!(shown.session.unwrap().residue_count, 1);
    world.rollback_check(agent.session).await;
}

/// How many effects the long session has; `UNDOLOG_TEST_EFFECTS` says otherwise.
fn effects() -> usize {
    size("UNDOLOG_TEST_EFFECTS", 300)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_session_is_undone_with_flat_memory() {
    let mut world = world().await;
    let mut agent = world.agent().await;
    let effects = effects();
    for n in 0..effects {
        let grant = agent.grant("charge", &json!({"n": n})).await;
        agent.commit(&grant.effect_id, &json!({"id": format!("none-{n}")})).await.unwrap();
    }
    world.witness.script(undolog_tests::witness::Script::always(
        "/undo/",
        undolog_tests::witness::Act::Answer(200, Vec::new(), "{}".to_owned()),
    ));
    let before = peak_kib(world.workers[0].process.id());
    agent.rollback().await.unwrap();
    agent.wait_state("compensated", Duration::from_secs(900)).await;
    let after = peak_kib(world.workers[0].process.id());
    println!("{effects} effects: the worker's peak grew from {before} to {after} KiB");
    // What a worker holds does not depend on how much there is to undo.
    assert!(after < before + 30_000, "the worker grew from {before} to {after} KiB");
    world.workers.clear();
    world.rollback_check(agent.session).await;
}

/// The most memory that a process has held.
fn peak_kib(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
