//! What a step of a walk reads does not grow with what was undone before it, also while the oldest
//! transaction of the server keeps every old version of every row.

use sqlx::{Connection as _, Executor as _, PgConnection};
use undolog_core::retry::CallOutcome;
use undolog_store::{sessions::RollbackScope, walk::Next};

use crate::{
    bench::Bench,
    statements::prepare,
    walker::{Walker, entries, pay, report_of},
};

const PAID: u32 = 120;
const NEXT: &str = include_str!("../../../store/sql/walk_next.sql");

/// Pages that the look for the next entry reads.
async fn pages(bench: &Bench, conn: &mut PgConnection, undo_top: i32) -> u64 {
    prepare(conn, NEXT).await.expect("prepare");
    let (session, org) = (bench.session, bench.org.id);
    let explain = format!(
        "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) \
         EXECUTE statement('{session}', '{org}', 0, {undo_top}, true)"
    );
    let plan: Vec<String> =
        sqlx::query_scalar(&explain).persistent(false).fetch_all(&mut *conn).await.expect("a plan");
    let line = plan.iter().find(|line| line.contains("Buffers:")).expect("what was read");
    let count = |key: &str| -> u64 {
        let rest = line.split_once(key).map_or("0", |(_, rest)| rest);
        rest.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0)
    };
    count("hit=") + count("read=")
}

#[tokio::test]
async fn a_walk_does_not_pass_again_over_what_it_has_undone() {
    let bench = Bench::new().await;
    pay(&bench, PAID).await;
    let mut old = PgConnection::connect(bench.db.url()).await.expect("connect");
    old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await.expect("begin");
    old.execute("SELECT count(*) FROM undolog_orgs").await.expect("an old snapshot");

    let walker = Walker::start(&bench).await;
    let mut call = Walker::call(walker.step(None).await);
    for _ in 1..PAID {
        call = Walker::call(walker.step(Some(report_of(&call, CallOutcome::Done))).await);
    }
    let undo_top: i32 =
        sqlx::query_scalar("SELECT undo_top FROM undolog_sessions WHERE session_id = $1")
            .bind(bench.session)
            .fetch_one(bench.db.pool())
            .await
            .expect("where the walk stands");
    assert_eq!(undo_top, 1, "the last entry is being called");
    let mut conn = PgConnection::connect(bench.db.url()).await.expect("connect");
    conn.execute("SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan")
        .await
        .expect("as a step does");
    // As autovacuum does within a minute: before, an index of the organisation looks as good as
    // the key.
    conn.execute("ANALYZE undolog_undo_stack; ANALYZE undolog_undo_attempts")
        .await
        .expect("analyze");
    let from_top = pages(&bench, &mut conn, i32::MAX).await;
    let from_there = pages(&bench, &mut conn, undo_top).await;
    assert!(from_top > u64::from(PAID), "everything undone is in the way: {from_top}");
    assert!(from_there < 40, "{from_there} pages, and {from_top} from the top");

    let next = walker.step(Some(report_of(&call, CallOutcome::Done))).await;
    assert!(matches!(next, Next::Done), "{next:?}");
    old.execute("ROLLBACK").await.expect("end");
    bench.check().await;
}

#[tokio::test]
async fn dead_letters_that_stop_nothing_are_not_read_at_each_step() {
    let bench = Bench::new().await;
    pay(&bench, 2).await;
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    let mut conn = PgConnection::connect(bench.db.url()).await.expect("connect");
    conn.execute("SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan")
        .await
        .expect("as a step does");
    // As a session has it of whose many calls no result is known, or whose letters were closed.
    let letters = |reason: &str, closed: &str| {
        format!(
            "INSERT INTO undolog_dead_letters (org_id, session_id, effect_id, undo_id, reason, \
               created_at, closed_at, closed_by) \
             SELECT u.org_id, u.session_id, uuidv7_or_random(), u.undo_id, '{reason}', now(), \
               {closed}, CASE WHEN {closed} IS NOT NULL THEN 'ada' END \
             FROM undolog_undo_stack u, generate_series(1, 1000) WHERE u.stack_position = 2"
        )
    };
    bench.run_sql(&letters("MISSING_RESULT", "NULL::timestamptz")).await;
    bench.run_sql(&letters("EXHAUSTED", "now()")).await;
    let read = pages(&bench, &mut conn, i32::MAX).await;
    assert!(read < 40, "{read} pages");
}

#[tokio::test]
async fn where_a_walk_stands_is_no_evidence_that_nothing_is_left() {
    let bench = Bench::new().await;
    pay(&bench, 3).await;
    let walker = Walker::start(&bench).await;
    let call = Walker::call(walker.step(None).await);
    // Wrong, as nothing of ours would make it.
    bench.run_sql("UPDATE undolog_sessions SET undo_top = 0").await;
    let call = Walker::call(walker.step(Some(report_of(&call, CallOutcome::Done))).await);
    let call = Walker::call(walker.step(Some(report_of(&call, CallOutcome::Done))).await);
    let next = walker.step(Some(report_of(&call, CallOutcome::Done))).await;
    assert!(matches!(next, Next::Done), "{next:?}");
    assert_eq!(entries(&bench).await, ["compensated"; 3]);
    bench.check().await;
}
