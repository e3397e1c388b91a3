//! Retries, deferrals and their ends.

use undolog_core::retry::CallOutcome;
use undolog_store::walk::Next;

use crate::{
    bench::Bench,
    walker::{Walker, entries, letters, outcomes, pay, report_of, run, time_passes},
};

#[tokio::test]
async fn one_plus_max_retries_calls_spaced_by_the_backoff() {
    let bench = Bench::new().await;
    pay(&bench, 1).await;
    let mut walker = Walker::start(&bench).await;
    for n in 1..=3_i32 {
        let call = Walker::call(walker.step(None).await);
        let next = walker.step(Some(report_of(&call, CallOutcome::Retry))).await;
        assert!(matches!(next, Next::Waiting), "{n}: {next:?}");
        let wait_ms: f64 = sqlx::query_scalar(
            "SELECT extract(epoch FROM u.next_try_at - a.finished_at)::float8 * 1000 \
             FROM undolog_undo_stack u JOIN undolog_undo_attempts a USING (undo_id) \
             WHERE a.undo_attempt_id = $1",
        )
        .bind(call.undo_attempt_id)
        .fetch_one(bench.db.pool())
        .await
        .expect("the wait");
        assert!((wait_ms - 1000.0 * 2_f64.powi(n - 1)).abs() < 1.0, "call {n}: {wait_ms} ms");
        time_passes(&bench).await;
        walker = Walker::claim(&bench).await;
    }
    let call = Walker::call(walker.step(None).await);
    let next = walker.step(Some(report_of(&call, CallOutcome::Retry))).await;
    assert!(matches!(next, Next::Done), "{next:?}");
    assert_eq!(outcomes(&bench).await, ["retryable"; 4]);
    let count = "SELECT retry_count::text FROM undolog_undo_stack";
    assert_eq!(bench.text(count).await, "3", "the documented count is of retries, not of calls");
    assert_eq!(letters(&bench).await, [("EXHAUSTED".to_owned(), true)]);
    assert_eq!(bench.session_state().await, "halted");
    bench.check().await;
}

#[tokio::test]
async fn deferrals_are_not_counted_and_end_after_a_day() {
    let bench = Bench::new().await;
    pay(&bench, 1).await;
    let mut walker = Walker::start(&bench).await;
    for _ in 0..6 {
        let call = Walker::call(walker.step(None).await);
        let defer = CallOutcome::Defer { after_ms: 7_000 };
        let next = walker.step(Some(report_of(&call, defer))).await;
        assert!(matches!(next, Next::Waiting), "{next:?}");
        time_passes(&bench).await;
        walker = Walker::claim(&bench).await;
    }
    let count: i16 = sqlx::query_scalar("SELECT retry_count FROM undolog_undo_stack")
        .fetch_one(bench.db.pool())
        .await
        .expect("the entry");
    assert_eq!(count, 0);
    run(
        bench.db.pool(),
        "UPDATE undolog_undo_stack SET deferred_since = now() - interval '24 hours'",
    )
    .await;
    let call = Walker::call(walker.step(None).await);
    let defer = CallOutcome::Defer { after_ms: 7_000 };
    let next = walker.step(Some(report_of(&call, defer))).await;
    assert!(matches!(next, Next::Done), "{next:?}");
    assert_eq!(letters(&bench).await, [("DEFERRED_TOO_LONG".to_owned(), true)]);
    assert_eq!(entries(&bench).await, ["failed"]);
    bench.check().await;
}
