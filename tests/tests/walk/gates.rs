//! Gates: pauses, limits and breakers hold a call back before its attempt is written.

use undolog_core::retry::CallOutcome;
use undolog_store::{sessions::RollbackScope, walk::Next};
use uuid::Uuid;

use crate::{
    bench::Bench,
    walker::{Walker, lease_over, letters, outcomes, pay, report_of, run, time_passes},
};

/// A new session with so many payments, whose rollback has begun.
async fn session(bench: &mut Bench, payments: u32) -> Uuid {
    bench.session = Uuid::new_v4();
    pay(bench, payments).await;
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    bench.session
}

async fn attempts(bench: &Bench) -> i64 {
    bench.count("undolog_undo_attempts").await
}

/// Claims and steps once: is a call made?
async fn calls(bench: &Bench) -> bool {
    time_passes(bench).await;
    let walker = Walker::claim(bench).await;
    match walker.step(None).await {
        Next::Call(_) => true,
        Next::Waiting => false,
        other => panic!("neither a call nor a wait: {other:?}"),
    }
}

async fn breaker(bench: &Bench) -> Option<(String, i32, i32, i32)> {
    sqlx::query_as("SELECT state, calls, failures, opened_count FROM undolog_route_breakers")
        .fetch_optional(bench.db.pool())
        .await
        .expect("a breaker")
}

#[tokio::test]
async fn a_pause_holds_back_and_counts_nothing() {
    let mut bench = Bench::new().await;
    session(&mut bench, 1).await;
    let org = bench.org.id;
    let pause = |name: &str| {
        format!("INSERT INTO undolog_pauses VALUES ('{org}', '{name}', now(), 'op', 'why')")
    };
    let resume = "DELETE FROM undolog_pauses; DELETE FROM undolog_pause_all";
    let all = "INSERT INTO undolog_pause_all (paused_by) VALUES ('owner')".to_owned();
    for sql in [pause(""), pause("undo_pay"), all] {
        run(bench.db.pool(), &sql).await;
        assert!(!calls(&bench).await, "{sql}");
        run(bench.db.pool(), resume).await;
    }
    assert_eq!(attempts(&bench).await, 0, "a wait is no attempt");
    let due = bench
        .text(
            "SELECT (due_at > now() + interval '4 seconds' AND lease_owner IS NULL)::text \
             FROM undolog_rollbacks WHERE session_id = $1",
        )
        .await;
    assert_eq!(due, "true", "it sleeps, and nobody holds it");
    run(bench.db.pool(), &pause("undo_put")).await;
    assert!(calls(&bench).await, "another function is paused");
    bench.check().await;
}

/// Lets the session's one call fail `times` times.
async fn fail(bench: &Bench, times: u32) {
    for _ in 0..times {
        time_passes(bench).await;
        let walker = Walker::claim(bench).await;
        let call = Walker::call(walker.step(None).await);
        let next = walker.step(Some(report_of(&call, CallOutcome::Retry))).await;
        assert!(matches!(next, Next::Waiting), "{next:?}");
    }
}

async fn patient(bench: &Bench) {
    run(bench.db.pool(), "UPDATE undolog_undo_stack SET max_retries = 100").await;
}

/// The breaker's pause is over.
async fn pause_over(bench: &Bench, seconds: u32) {
    let sql =
        format!("UPDATE undolog_route_breakers SET opened_at = now() - interval '{seconds} s'");
    run(bench.db.pool(), &sql).await;
}

#[tokio::test]
async fn a_host_that_fails_gets_a_pause_and_one_call_to_show_that_it_is_back() {
    let mut bench = Bench::new().await;
    let first = session(&mut bench, 1).await;
    patient(&bench).await;
    fail(&bench, 9).await;
    assert_eq!(breaker(&bench).await, None, "nine calls are no verdict");
    fail(&bench, 1).await;
    assert_eq!(breaker(&bench).await, Some(("open".to_owned(), 10, 10, 1)));
    assert!(!calls(&bench).await, "the host has a pause");
    pause_over(&bench, 29).await;
    assert!(!calls(&bench).await, "29 seconds are not over the first pause");
    assert_eq!(attempts(&bench).await, 10);
    let other = session(&mut bench, 1).await;
    patient(&bench).await;
    pause_over(&bench, 31).await;
    bench.session = first;
    fail(&bench, 1).await;
    assert_eq!(breaker(&bench).await.map(|b| (b.0, b.3)), Some(("open".to_owned(), 2)));
    pause_over(&bench, 31).await;
    assert!(!calls(&bench).await, "the second pause is longer");
    pause_over(&bench, 61).await;
    let walker = {
        time_passes(&bench).await;
        Walker::claim(&bench).await
    };
    let probe = Walker::call(walker.step(None).await);
    bench.session = other;
    assert!(!calls(&bench).await, "one call is enough to see");
    bench.session = first;
    walker.step(Some(report_of(&probe, CallOutcome::Done))).await;
    assert_eq!(breaker(&bench).await, Some(("closed".to_owned(), 0, 0, 0)));
    bench.check().await;
    bench.session = other;
    fail(&bench, 1).await;
    assert_eq!(breaker(&bench).await.map(|b| b.0).as_deref(), Some("closed"), "a new window");
    assert!(calls(&bench).await);
    bench.check().await;
}

#[tokio::test]
async fn a_worker_that_dies_with_the_one_call_does_not_keep_the_host_closed() {
    let mut bench = Bench::new().await;
    let first = session(&mut bench, 1).await;
    patient(&bench).await;
    fail(&bench, 10).await;
    session(&mut bench, 1).await;
    let other = bench.session;
    bench.session = first;
    pause_over(&bench, 31).await;
    assert!(calls(&bench).await, "the one call");
    bench.session = other;
    assert!(!calls(&bench).await, "it is on its way");
    lease_over(&bench).await;
    assert!(calls(&bench).await, "its worker is gone: the next one takes its place");
}

#[tokio::test]
async fn refusals_and_deferrals_open_no_breaker() {
    let mut bench = Bench::new().await;
    bench.org.set(bench.db.pool(), "on_dead_letter", "continue").await;
    session(&mut bench, 8).await;
    let walker = Walker::claim(&bench).await;
    let mut next = walker.step(None).await;
    while let Next::Call(call) = next {
        next = walker.step(Some(report_of(&call, CallOutcome::Permanent))).await;
    }
    session(&mut bench, 1).await;
    for _ in 0..8 {
        time_passes(&bench).await;
        let walker = Walker::claim(&bench).await;
        let call = Walker::call(walker.step(None).await);
        let defer = CallOutcome::Defer { after_ms: 1_000 };
        walker.step(Some(report_of(&call, defer))).await;
    }
    assert_eq!(attempts(&bench).await, 16);
    assert_eq!(breaker(&bench).await, None);
    assert_eq!(letters(&bench).await, [], "a deferral is counted nowhere");
    // Those that were refused speak for the host: seven failures of 23 calls are no verdict.
    patient(&bench).await;
    fail(&bench, 7).await;
    assert_eq!(breaker(&bench).await, None);
}

async fn limit(bench: &Bench, column: &str, value: i32) {
    let sql = format!("UPDATE undolog_compensation_registry SET {column} = {value}");
    run(bench.db.pool(), &sql).await;
}

#[tokio::test]
async fn of_many_that_ask_together_as_many_run_as_there_are_places() {
    let mut bench = Bench::new().await;
    limit(&bench, "concurrency_max", 2).await;
    let mut walkers = Vec::new();
    for _ in 0..10 {
        session(&mut bench, 2).await;
        walkers.push(std::sync::Arc::new(Walker::claim(&bench).await));
    }
    let steps = walkers.iter().cloned().map(|walker| {
        tokio::spawn(async move {
            let next = walker.step(None).await;
            (walker, next)
        })
    });
    let steps: Vec<_> = steps.collect();
    let mut running = Vec::new();
    let mut waiting = Vec::new();
    for step in steps {
        match step.await.expect("no panic") {
            (walker, Next::Call(call)) => running.push((walker, call)),
            (walker, Next::Waiting) => waiting.push(walker.claim.session_id),
            (_, other) => panic!("{other:?}"),
        }
    }
    // Those that found the function's lock held come again.
    for session_id in waiting {
        bench.session = session_id;
        time_passes(&bench).await;
        let walker = Walker::claim(&bench).await;
        if let Next::Call(call) = walker.step(None).await {
            running.push((std::sync::Arc::new(walker), call));
        }
    }
    assert_eq!(running.len(), 2, "as many run as there are places");
    assert_eq!(attempts(&bench).await, 2);
    let (walker, call) = &running[0];
    let next = walker.step(Some(report_of(call, CallOutcome::Done))).await;
    assert!(matches!(next, Next::Call(_)), "its place is free again: {next:?}");
    assert_eq!(attempts(&bench).await, 3);
    // The other one's worker dies: what it ran counts no more when its lease is over.
    assert!(!calls(&bench).await);
    lease_over(&bench).await;
    assert!(calls(&bench).await);
}

#[tokio::test]
async fn no_more_calls_begin_within_a_minute_than_the_rate() {
    let mut bench = Bench::new().await;
    limit(&bench, "rate_per_minute", 3).await;
    session(&mut bench, 5).await;
    let walker = Walker::claim(&bench).await;
    let mut next = walker.step(None).await;
    for _ in 0..3 {
        let call = Walker::call(next);
        next = walker.step(Some(report_of(&call, CallOutcome::Done))).await;
    }
    assert!(matches!(next, Next::Waiting), "{next:?}");
    let wait = "SELECT (due_at - (SELECT min(started_at) FROM undolog_undo_attempts) \
        >= interval '1 minute')::text FROM undolog_rollbacks WHERE session_id = $1";
    assert_eq!(bench.text(wait).await, "true", "it sleeps until the minute is over");
    assert!(!calls(&bench).await);
    let old = |seconds: u32| {
        format!("UPDATE undolog_call_counts SET second = second - interval '{seconds} seconds'")
    };
    run(bench.db.pool(), &old(50)).await;
    assert!(!calls(&bench).await, "the minute is not over");
    run(bench.db.pool(), &old(12)).await;
    assert!(calls(&bench).await);
    assert_eq!(outcomes(&bench).await.len(), 4);
    bench.check().await;
}

#[tokio::test]
async fn a_rate_of_a_million_is_counted_in_a_minutes_rows() {
    let mut bench = Bench::new().await;
    limit(&bench, "rate_per_minute", 1_000_000).await;
    session(&mut bench, 1).await;
    assert!(calls(&bench).await);
    // A minute of calls: so many rows of attempts would be read one by one.
    run(
        bench.db.pool(),
        "INSERT INTO undolog_call_counts (org_id, compensation_fn, second, calls) \
         SELECT org_id, 'undo_pay', date_trunc('second', now()) - n * interval '1 second', 16000 \
         FROM undolog_orgs, generate_series(1, 3600) n \
         ON CONFLICT (org_id, compensation_fn, second) DO UPDATE SET calls = EXCLUDED.calls",
    )
    .await;
    run(bench.db.pool(), "ANALYZE undolog_call_counts").await;
    let explain = include_str!("../../../store/sql/gate_room.sql");
    let mut conn = bench.db.pool().acquire().await.expect("a connection");
    let plan: serde_json::Value = sqlx::query_scalar(&format!(
        "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {}",
        explain
            .replace("$1", &format!("'{}'::uuid", bench.org.id))
            .replace("$2", "'undo_pay'")
            .replace("$3", "1000000")
            .replace("$4", "now()")
    ))
    .fetch_one(&mut *conn)
    .await
    .expect("a plan");
    let text = plan.to_string();
    let read = rows_read(&plan[0]["Plan"]);
    assert!(read <= 4 * 125, "{read} rows are read: {text}");
    assert!(calls_again(&mut bench).await, "960,000 of 1,000,000");
    let more = "UPDATE undolog_call_counts SET calls = 17000";
    run(bench.db.pool(), more).await;
    assert!(!calls_again(&mut bench).await, "1,020,000 of 1,000,000");
}

/// A new session's call: is it made?
async fn calls_again(bench: &mut Bench) -> bool {
    session(bench, 1).await;
    calls(bench).await
}

/// The most rows that one node of a plan read or threw away.
fn rows_read(node: &serde_json::Value) -> u64 {
    let own = ["Actual Rows", "Rows Removed by Filter"]
        .iter()
        .map(|key| node[*key].as_f64().unwrap_or(0.0))
        .sum::<f64>();
    let own = format!("{own:.0}").parse().unwrap_or(u64::MAX);
    let below = node["Plans"].as_array().into_iter().flatten().map(rows_read).max();
    below.unwrap_or(0).max(own)
}

#[tokio::test]
async fn a_crowd_at_one_functions_lock_holds_no_connection() {
    let mut bench = Bench::new().await;
    bench.compensation("undo_put", serde_json::json!({})).await;
    limit(&bench, "concurrency_max", 5).await;
    let mut holder = bench.db.pool().begin().await.expect("a transaction");
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('undolog.limit:' || $1, 0))")
        .bind(format!("{}:undo_pay", bench.org.id))
        .execute(&mut *holder)
        .await
        .expect("the lock");
    let mut crowd = Vec::new();
    for _ in 0..12 {
        session(&mut bench, 1).await;
        crowd.push(Walker::claim(&bench).await);
    }
    let store = crowd[0].store.clone();
    for walker in &mut crowd {
        walker.store = store.clone();
    }
    let steps =
        crowd.into_iter().map(|walker| tokio::spawn(async move { walker.step(None).await }));
    let steps: Vec<_> = steps.collect();
    for step in steps {
        // The lock is still held: nobody waits for it.
        assert!(matches!(step.await.expect("no panic"), Next::Waiting));
    }
    assert_eq!(attempts(&bench).await, 0);
    holder.rollback().await.expect("let go");
    assert!(calls(&bench).await);
}

/// Binds the tool `pay` to another compensation at the same host.
async fn another_route(bench: &Bench) {
    bench
        .compensation("undo_pay_2", serde_json::json!({"endpoint": "https://undo.example/2"}))
        .await;
    bench
        .tool("pay", undolog_core::Tier::Compensable, |tool| {
            tool.compensation_ref = "undo_pay_2".into();
        })
        .await;
}

#[tokio::test]
async fn a_broken_path_stops_no_other_path_of_its_host() {
    let mut bench = Bench::new().await;
    let broken = session(&mut bench, 1).await;
    patient(&bench).await;
    fail(&bench, 10).await;
    assert_eq!(breaker(&bench).await.map(|b| b.0).as_deref(), Some("open"));
    another_route(&bench).await;
    session(&mut bench, 1).await;
    pause_over(&bench, 31).await;
    time_passes(&bench).await;
    let walker = Walker::claim(&bench).await;
    let healthy = Walker::call(walker.step(None).await);
    walker.step(Some(report_of(&healthy, CallOutcome::Done))).await;
    let state: Vec<(String, String)> =
        sqlx::query_as("SELECT compensation_fn, state FROM undolog_route_breakers")
            .fetch_all(bench.db.pool())
            .await
            .expect("breakers");
    let still_open = [("undo_pay".to_owned(), "open".to_owned())];
    assert_eq!(state, still_open, "another route's success closes nothing");
    bench.session = broken;
    fail(&bench, 1).await;
    assert_eq!(breaker(&bench).await.map(|b| b.3), Some(2), "its own trial failed");
    bench.check().await;
}

#[tokio::test]
async fn an_operator_closes_a_breaker_and_what_waited_goes_on() {
    use undolog_store::operate::{CloseBreaker, queue_status};

    let mut bench = Bench::new().await;
    session(&mut bench, 1).await;
    patient(&bench).await;
    fail(&bench, 10).await;
    assert!(!calls(&bench).await);
    let operator = bench.caller(undolog_core::role::Role::Operator, "olga");
    let status = queue_status(&bench.store, &operator, "").await.expect("status");
    let shown = &status.breakers[0];
    assert_eq!((shown.compensation_fn.as_str(), shown.state.as_str()), ("undo_pay", "open"));
    assert!(shown.host.starts_with("https://undo.example"), "{}", shown.host);
    let close = |compensation_fn: &str, host: &str| CloseBreaker {
        caller: operator.clone(),
        compensation_fn: compensation_fn.into(),
        host: host.into(),
    };
    assert_eq!(bench.store.run(close("undo_put", "")).await.expect("close"), 0);
    assert_eq!(bench.store.run(close("", "https://other.example:443")).await.expect("close"), 0);
    bench.store.run(close("", "")).await.expect_err("which one?");
    assert!(!calls(&bench).await, "it is still open");
    assert_eq!(bench.store.run(close("", &shown.host)).await.expect("close"), 1);
    let due = "SELECT (due_at <= now() + interval '1 second')::text FROM undolog_rollbacks \
        WHERE session_id = $1";
    assert_eq!(bench.text(due).await, "true", "it is woken");
    fail(&bench, 1).await;
    let closed = breaker(&bench).await.expect("a breaker");
    assert_eq!((closed.0.as_str(), closed.3), ("closed", 0), "one failure is no verdict again");
}
