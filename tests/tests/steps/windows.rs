//! What our own outages do to the windows of approvals.

use std::time::Duration;

use undolog_core::Reason;
use undolog_store::{service, sweeps};
use uuid::Uuid;

use crate::bench::{Bench, awaiting, refused};

/// The window that each request has here.
const WINDOW: u64 = 60;

async fn bench() -> Bench {
    let bench = Bench::with_clock().await;
    bench.org.set(bench.db.pool(), "auto_approve_on_timeout", "true").await;
    run_sql(&bench, "UPDATE undolog_orgs SET default_approval_timeout_seconds = 60").await;
    tick(&bench).await;
    bench
}

async fn tick(bench: &Bench) {
    service::tick(&bench.store, "engine").await.expect("a tick");
}

/// Lets time pass in which engines ticked all along.
async fn pass(bench: &Bench, seconds: u64) {
    bench.db.clock().advance(Duration::from_secs(seconds));
    run_sql(bench, "UPDATE undolog_service SET last_tick_at = clock_timestamp()").await;
}

async fn run_sql(bench: &Bench, sql: &str) {
    sqlx::raw_sql(sql).execute(bench.db.pool()).await.expect(sql);
}

async fn sweep(bench: &Bench) -> u64 {
    let url = bench.db.url().to_owned().into();
    let options = undolog_store::StoreOptions::new(url, Some("undolog_worker"), "sweeper");
    let store = undolog_store::Store::connect(&options).await.expect("connect as a worker");
    sweeps::approvals(&store).await.expect("sweep").settled
}

async fn asked(bench: &Bench, step: u32) -> (Uuid, Uuid) {
    awaiting(&bench.ask(step, "wipe").await.expect("asked"))
}

#[tokio::test]
async fn a_first_start_holds_no_automatic_approval() {
    let bench = bench().await;
    let (effect, _) = asked(&bench, 1).await;
    pass(&bench, WINDOW + 1).await;
    assert_eq!(sweep(&bench).await, 1);
    assert_eq!(bench.effect_state(effect).await, "approved");
    bench.check().await;
}

#[tokio::test]
async fn only_what_was_due_during_an_outage_waits_for_people() {
    let bench = bench().await;
    let (due, approval) = asked(&bench, 1).await;
    bench.db.clock().advance(Duration::from_secs(600));
    tick(&bench).await;
    let (later, _) = asked(&bench, 2).await;
    pass(&bench, WINDOW + 1).await;
    assert_eq!(sweep(&bench).await, 1, "what was asked after the return");
    assert_eq!(bench.effect_state(later).await, "approved");
    assert_eq!(bench.effect_state(due).await, "pending");
    // A second outage in that time leaves people theirs.
    bench.db.clock().advance(Duration::from_secs(300));
    tick(&bench).await;
    pass(&bench, 890).await;
    assert_eq!(sweep(&bench).await, 0);
    bench.approve(approval, None).await.expect("a human may decide as long as it is held");
    assert_eq!(bench.effect_state(due).await, "approved");
    bench.check().await;
}

#[tokio::test]
async fn what_was_held_for_people_is_approved_when_their_time_is_over() {
    let bench = bench().await;
    let (due, approval) = asked(&bench, 1).await;
    bench.db.clock().advance(Duration::from_secs(600));
    refused_or_pending(&bench, due).await;
    tick(&bench).await;
    pass(&bench, 899).await;
    assert_eq!(sweep(&bench).await, 0);
    pass(&bench, 2).await;
    refused(bench.approve(approval, None).await, Reason::ApprovalTimedOut);
    assert_eq!(sweep(&bench).await, 1);
    assert_eq!(bench.effect_state(due).await, "approved");
    bench.check().await;
}

/// Nothing is decided while no engine is seen.
async fn refused_or_pending(bench: &Bench, effect: Uuid) {
    assert_eq!(sweep(bench).await, 0);
    assert_eq!(bench.effect_state(effect).await, "pending");
}

#[tokio::test]
async fn a_human_rejects_what_is_held() {
    let bench = bench().await;
    let (due, approval) = asked(&bench, 1).await;
    bench.db.clock().advance(Duration::from_secs(600));
    tick(&bench).await;
    bench.reject(approval).await.expect("rejected");
    assert_eq!(bench.effect_state(due).await, "rejected");
    bench.check().await;
}

#[tokio::test]
async fn many_requests_that_are_held_do_not_starve_one_that_can_be_settled() {
    let mut bench = bench().await;
    for step in 1..=1_200 {
        asked(&bench, step).await;
    }
    bench.session = Uuid::new_v4();
    bench
        .tool("shred", undolog_core::Tier::Irreversible, |tool| {
            tool.irreversibility_reason = "it is gone".into();
            tool.auto_approve_on_timeout = Some(false);
        })
        .await;
    let (effect, _) = awaiting(&bench.ask(1, "shred").await.expect("asked"));
    bench.db.clock().advance(Duration::from_secs(600));
    tick(&bench).await;
    assert_eq!(sweep(&bench).await, 1);
    assert_eq!(bench.effect_state(effect).await, "rejected");
}
