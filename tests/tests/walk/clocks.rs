//! Steps of the database's clock: nothing healthy is undone, and nothing waits longer than it meant
//! to.

use std::time::Duration;

use chrono::TimeDelta;
use undolog_core::retry::CallOutcome;
use undolog_store::{
    service,
    sessions::{Begin, Heartbeat, RollbackScope},
    sweeps::{self, Schedule},
    walk::Next,
};
use undolog_tests::eventually;
use uuid::Uuid;

use crate::{
    bench::Bench,
    walker::{Walker, pay, report_of, run, try_claim, worker_store},
};

const TEN_MINUTES: TimeDelta = TimeDelta::minutes(10);

/// An engine that ticks, and a session with work in it.
async fn bench() -> Bench {
    let bench = Bench::with_clock().await;
    tick(&bench).await;
    bench
}

async fn tick(bench: &Bench) {
    service::tick(&bench.store, "engine").await.expect("a tick");
}

/// Lets time pass in which engines ticked all along.
async fn pass(bench: &Bench, seconds: u64) {
    bench.db.clock().advance(Duration::from_secs(seconds));
    let ticked = "UPDATE undolog_service SET last_tick_at = clock_timestamp()";
    run(bench.db.pool(), ticked).await;
}

#[tokio::test]
async fn a_step_back_stalls_no_walk() {
    let bench = bench().await;
    pay(&bench, 2).await;
    bench.db.clock().step(-TEN_MINUTES);
    tick(&bench).await;
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    let walker = Walker::claim(&bench).await;
    assert_eq!(walker.succeed().await.len(), 2);
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
}

#[tokio::test]
async fn a_rollback_that_was_due_before_a_step_back_is_due_after_it() {
    let bench = bench().await;
    let store = worker_store(&bench).await;
    pay(&bench, 1).await;
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    sweeps::reaper(&store).await.expect("sweep");
    bench.db.clock().step(-TEN_MINUTES);
    assert_eq!(sweeps::reaper(&store).await.expect("sweep").settled, 1, "a ticket for it");
    let walker = Walker::claim(&bench).await;
    assert_eq!(walker.succeed().await.len(), 1);
}

#[tokio::test]
async fn a_dead_workers_claim_ends_after_its_lease_whatever_the_clock_does() {
    let bench = bench().await;
    let store = worker_store(&bench).await;
    pay(&bench, 1).await;
    let dead = Walker::start(&bench).await;
    let _never_answered = Walker::call(dead.step(None).await);
    sweeps::reaper(&store).await.expect("sweep");
    bench.db.clock().step(-TEN_MINUTES);
    sweeps::reaper(&store).await.expect("sweep");
    assert!(try_claim(&bench, &store, "next").await.is_none(), "its holder may live");
    pass(&bench, 31).await;
    assert!(try_claim(&bench, &store, "next").await.is_some());
}

#[tokio::test]
async fn a_retry_waits_for_its_backoff_and_not_for_the_clock_to_come_back() {
    let bench = bench().await;
    let store = worker_store(&bench).await;
    pay(&bench, 1).await;
    let walker = Walker::start(&bench).await;
    let call = Walker::call(walker.step(None).await);
    let next = walker.step(Some(report_of(&call, CallOutcome::Retry))).await;
    assert!(matches!(next, Next::Waiting), "{next:?}");
    sweeps::reaper(&store).await.expect("sweep");
    bench.db.clock().step(-TEN_MINUTES);
    sweeps::reaper(&store).await.expect("sweep");
    assert!(try_claim(&bench, &store, "early").await.is_none(), "a backoff is a floor");
    pass(&bench, 3).await;
    let walker = Walker::claim(&bench).await;
    let call = Walker::call(walker.step(None).await);
    walker.step(Some(report_of(&call, CallOutcome::Done))).await;
    assert_eq!(bench.session_state().await, "compensated");
}

#[tokio::test]
async fn what_is_being_written_while_the_clock_steps_back_waits_no_longer() {
    let bench = bench().await;
    let store = worker_store(&bench).await;
    pay(&bench, 1).await;
    let walker = Walker::start(&bench).await;
    let call = Walker::call(walker.step(None).await);
    sweeps::reaper(&store).await.expect("sweep");
    // The step has read the clock, and waits for a row.
    let mut held = bench.db.pool().begin().await.expect("begin");
    sqlx::query("SELECT FROM undolog_rollbacks FOR UPDATE")
        .execute(&mut *held)
        .await
        .expect("hold the rollback");
    let meanwhile = async {
        eventually("the step waits", || async {
            let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted";
            let waits: i64 =
                sqlx::query_scalar(waits).fetch_one(bench.db.pool()).await.expect("locks");
            if waits > 0 { Ok(()) } else { Err(waits) }
        })
        .await;
        bench.db.clock().step(-TEN_MINUTES);
        sweeps::reaper(&store).await.expect("sweep");
        held.commit().await.expect("let it go");
    };
    let (next, ()) =
        tokio::join!(walker.step(Some(report_of(&call, CallOutcome::Retry))), meanwhile);
    assert!(matches!(next, Next::Waiting), "{next:?}");
    sweeps::reaper(&store).await.expect("sweep");
    pass(&bench, 3).await;
    let walker = Walker::claim(&bench).await;
    let call = Walker::call(walker.step(None).await);
    walker.step(Some(report_of(&call, CallOutcome::Done))).await;
    assert_eq!(bench.session_state().await, "compensated");
}

#[tokio::test]
async fn a_glitch_that_nobody_saw_leaves_nothing_that_waits_for_it() {
    let bench = bench().await;
    let store = worker_store(&bench).await;
    pay(&bench, 1).await;
    sweeps::reaper(&store).await.expect("sweep");
    bench.db.clock().step(TEN_MINUTES);
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    bench.db.clock().step(-TEN_MINUTES);
    assert!(try_claim(&bench, &store, "w").await.is_none(), "it is due in ten minutes");
    pass(&bench, 61).await;
    sweeps::reaper(&store).await.expect("sweep");
    assert!(try_claim(&bench, &store, "w").await.is_some());
}

#[tokio::test]
async fn a_step_forward_loses_no_session_and_no_grant() {
    let bench = bench().await;
    let store = worker_store(&bench).await;
    bench.begin().await;
    pay(&bench, 1).await;
    let running = bench.grant(2, "pay").await;
    bench.db.clock().step(TEN_MINUTES);
    for _ in 0..2 {
        sweeps::grants(&store).await.expect("sweep");
        sweeps::sessions(&store).await.expect("sweep");
        sweeps::idle(&store).await.expect("sweep");
        assert_eq!(bench.effect_state(running).await, "executing");
        assert_eq!(bench.session_state().await, "active");
        // Before an engine has seen the step, and after it.
        tick(&bench).await;
    }
    bench.db.clock().step(-TEN_MINUTES);
    sweeps::grants(&store).await.expect("sweep");
    tick(&bench).await;
    sweeps::grants(&store).await.expect("sweep");
    sweeps::sessions(&store).await.expect("sweep");
    assert_eq!(bench.effect_state(running).await, "executing");
    bench.commit(running, &serde_json::json!(1)).await.expect("commit");
    bench.complete().await.expect("complete");
}

#[tokio::test]
async fn a_clock_that_goes_back_and_comes_back_between_two_ticks_ends_no_lease() {
    let bench = bench().await;
    let store = worker_store(&bench).await;
    bench.begin().await;
    pay(&bench, 1).await;
    sweeps::reaper(&store).await.expect("sweep");
    bench.db.clock().step(-TEN_MINUTES);
    let running = bench.grant(2, "pay").await;
    let young = Uuid::new_v4();
    bench.store.run(Begin { session_id: Some(young), ..bench.begin_step() }).await.expect("begin");
    sweeps::reaper(&store).await.expect("sweep");
    bench.db.clock().step(TEN_MINUTES);
    tick(&bench).await;
    sweeps::reaper(&store).await.expect("sweep");
    sweeps::grants(&store).await.expect("sweep");
    assert_eq!(sweeps::sessions(&store).await.expect("sweep").settled, 0);
    assert_eq!(bench.effect_state(running).await, "executing");
    assert_eq!(bench.session_state().await, "active");
}

#[tokio::test]
async fn a_step_forward_ends_no_execution() {
    let bench = bench().await;
    bench
        .tool("slow", undolog_core::Tier::Compensable, |tool| {
            tool.compensation_ref = "undo_pay".into();
            tool.max_execution_ms = 120_000;
        })
        .await;
    let running = bench.grant(1, "slow").await;
    let beat = || async {
        let grants = vec![(running, 1)];
        let beat = Heartbeat { caller: bench.agent(), session_id: bench.session, grants };
        let reply = bench.store.run(beat).await.expect("a heartbeat");
        reply.grants[0].stop
    };
    bench.db.clock().step(TEN_MINUTES);
    assert!(!beat().await, "before an engine has seen the step");
    tick(&bench).await;
    assert!(!beat().await, "after it");
    pass(&bench, 100).await;
    assert!(!beat().await);
    pass(&bench, 30).await;
    assert!(beat().await, "it still ends some day");
}

#[tokio::test]
async fn after_a_step_back_what_is_gone_is_noticed_after_its_lease() {
    let bench = bench().await;
    let store = worker_store(&bench).await;
    bench.begin().await;
    pay(&bench, 1).await;
    let gone = bench.grant(2, "pay").await;
    sweeps::reaper(&store).await.expect("sweep");
    bench.db.clock().step(TimeDelta::minutes(-60));
    tick(&bench).await;
    sweeps::reaper(&store).await.expect("sweep");
    // The grant's lease is 15 minutes, the session's 5.
    pass(&bench, 901).await;
    assert_eq!(sweeps::grants(&store).await.expect("sweep").settled, 1);
    assert_eq!(bench.effect_state(gone).await, "unknown");
    assert_eq!(sweeps::sessions(&store).await.expect("sweep").settled, 1);
    assert_eq!(bench.session_state().await, "compensating");
}

#[tokio::test]
async fn an_outage_is_seen_while_the_clock_is_behind_an_earlier_tick() {
    let bench = bench().await;
    let store = worker_store(&bench).await;
    bench.begin().await;
    pay(&bench, 1).await;
    sweeps::reaper(&store).await.expect("sweep");
    bench.db.clock().step(TimeDelta::hours(-2));
    tick(&bench).await;
    sweeps::reaper(&store).await.expect("sweep");
    bench.db.clock().step(TimeDelta::hours(1));
    sweeps::sessions(&store).await.expect("sweep");
    tick(&bench).await;
    sweeps::sessions(&store).await.expect("sweep");
    assert_eq!(bench.session_state().await, "active");
    pass(&bench, 301).await;
    assert_eq!(sweeps::sessions(&store).await.expect("sweep").settled, 1, "and then it is lost");
}

#[tokio::test]
async fn a_slot_that_lies_ahead_stops_no_schedule() {
    let bench = bench().await;
    let store = worker_store(&bench).await;
    let slot = || async {
        sqlx::query_scalar::<_, i64>(
            "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000 / 5000)::bigint",
        )
        .fetch_one(bench.db.pool())
        .await
        .expect("a slot")
    };
    for step in [TimeDelta::seconds(-40), -TEN_MINUTES] {
        pass(&bench, 10).await;
        let now = slot().await;
        assert!(sweeps::claim_slot(&store, Schedule::Grants, now, "w").await.expect("claim"));
        run(bench.db.pool(), "DELETE FROM apalis.jobs").await;
        bench.db.clock().step(step);
        sweeps::enqueue_due(&store).await.expect("enqueue");
        let tickets: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM apalis.jobs WHERE job ->> 'subject' = 'grants'",
        )
        .fetch_one(bench.db.pool())
        .await
        .expect("tickets");
        assert_eq!(tickets, 1, "{step}");
        let now = slot().await;
        assert!(sweeps::claim_slot(&store, Schedule::Grants, now, "w").await.expect("claim"));
        assert!(!sweeps::claim_slot(&store, Schedule::Grants, now, "v").await.expect("claim"));
    }
}

#[tokio::test]
async fn a_ticket_that_lies_ahead_is_due_after_a_step_back() {
    let bench = bench().await;
    let store = worker_store(&bench).await;
    sweeps::reaper(&store).await.expect("sweep");
    pay(&bench, 50).await;
    let waiting = "SELECT count(*)::text FROM apalis.jobs WHERE status = 'Pending' \
        AND run_at > clock_timestamp() AND $1::uuid IS NOT NULL";
    bench.db.clock().step(-TEN_MINUTES);
    assert_eq!(bench.text(waiting).await, "1", "the snapshot's");
    sweeps::reaper(&store).await.expect("sweep");
    assert_eq!(bench.text(waiting).await, "0");
}

#[tokio::test]
async fn a_breaker_is_not_open_until_the_clock_comes_back() {
    let bench = bench().await;
    let store = worker_store(&bench).await;
    pay(&bench, 1).await;
    sweeps::reaper(&store).await.expect("sweep");
    run(
        bench.db.pool(),
        "INSERT INTO undolog_route_breakers (org_id, compensation_fn, host, state, \
         window_started_at, opened_at, opened_count) SELECT org_id, 'undo_pay', \
         'https://undo.example:443', 'open', clock_timestamp(), \
         clock_timestamp(), 1 FROM undolog_orgs",
    )
    .await;
    bench.db.clock().step(-TEN_MINUTES);
    sweeps::reaper(&store).await.expect("sweep");
    pass(&bench, 31).await;
    let opened: bool = sqlx::query_scalar(
        "SELECT opened_at <= clock_timestamp() - interval '30 seconds' FROM undolog_route_breakers",
    )
    .fetch_one(bench.db.pool())
    .await
    .expect("a breaker");
    assert!(opened);
}
