//! Sweeps: lost grants, lost and idle sessions, the brake, the reaper, the slots.

use serde_json::json;
use sqlx::PgPool;
use undolog_store::{
    sessions::RollbackScope,
    sweeps::{self, Schedule},
};
use uuid::Uuid;

use crate::{
    bench::Bench,
    walker::{Walker, pay, rollback_id, run, worker_store},
};

/// The engine's service runs without a gap.
async fn ticks(pool: &PgPool) {
    run(
        pool,
        "INSERT INTO undolog_service VALUES ('engine', now(), now() - interval '2 days') \
         ON CONFLICT (service) DO UPDATE SET last_tick_at = now(), \
         resumed_at = now() - interval '2 days'",
    )
    .await;
}

/// Everybody was last heard of an hour ago.
async fn silence(bench: &Bench) {
    ticks(bench.db.pool()).await;
    run(
        bench.db.pool(),
        "UPDATE undolog_sessions SET last_rpc_at = now() - interval '1 hour', \
         lease_renewed_at = lease_renewed_at - interval '1 hour'",
    )
    .await;
}

/// Many sessions with a lease and one committed payment each.
async fn many(bench: &mut Bench, count: u32) -> Vec<Uuid> {
    let mut sessions = Vec::new();
    for _ in 0..count {
        bench.session = Uuid::new_v4();
        bench.begin().await;
        pay(bench, 1).await;
        sessions.push(bench.session);
    }
    sessions
}

async fn states(bench: &Bench, state: &str) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM undolog_sessions WHERE state::text = $1")
        .bind(state)
        .fetch_one(bench.db.pool())
        .await
        .expect("count")
}

#[tokio::test]
async fn a_grant_without_a_report_becomes_unknown_and_a_draining_rollback_hears_it() {
    let bench = Bench::new().await;
    let store = worker_store(&bench).await;
    let gone = bench.grant(1, "pay").await;
    ticks(bench.db.pool()).await;
    assert_eq!(sweeps::grants(&store).await.expect("sweep").settled, 0, "its lease runs");
    bench.expire(gone).await;
    assert_eq!(sweeps::grants(&store).await.expect("sweep").settled, 1);
    assert_eq!(bench.effect_state(gone).await, "unknown");
    assert_eq!(sweeps::grants(&store).await.expect("sweep").settled, 0, "once");
    let second = bench.grant(2, "pay").await;
    run(bench.db.pool(), "UPDATE undolog_orgs SET settle_ms = 0").await;
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    bench.expire(second).await;
    assert_eq!(sweeps::grants(&store).await.expect("sweep").settled, 1);
    let walker = Walker::claim(&bench).await;
    assert_eq!(walker.succeed().await.len(), 2);
    bench.check().await;
}

#[tokio::test]
async fn a_session_whose_lease_ran_out_fails_and_is_rolled_back() {
    let bench = Bench::new().await;
    let store = worker_store(&bench).await;
    bench.begin().await;
    pay(&bench, 1).await;
    ticks(bench.db.pool()).await;
    assert_eq!(sweeps::sessions(&store).await.expect("sweep").settled, 0);
    silence(&bench).await;
    assert_eq!(sweeps::sessions(&store).await.expect("sweep").settled, 1);
    assert_eq!(bench.session_state().await, "compensating");
    let cause = bench.text("SELECT cause FROM undolog_rollbacks WHERE session_id = $1").await;
    assert_eq!(cause, "lease");
    Walker::claim(&bench).await.succeed().await;
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
}

#[tokio::test]
async fn a_lost_sessions_unspent_approval_dies_with_it() {
    let bench = Bench::new().await;
    let store = worker_store(&bench).await;
    bench.begin().await;
    pay(&bench, 1).await;
    let (effect, approval) = crate::bench::awaiting(&bench.ask(2, "wipe").await.expect("asked"));
    bench.approve(approval, None).await.expect("approve");
    silence(&bench).await;
    assert_eq!(sweeps::sessions(&store).await.expect("sweep").settled, 0, "its resume window");
    run(bench.db.pool(), "UPDATE undolog_sessions SET lease_hold_until = now()").await;
    assert_eq!(sweeps::sessions(&store).await.expect("sweep").settled, 1);
    assert_eq!(bench.effect_state(effect).await, "rejected");
    bench.check().await;
}

#[tokio::test]
async fn a_live_grant_keeps_its_session_alive() {
    let bench = Bench::new().await;
    let store = worker_store(&bench).await;
    bench.begin().await;
    let running = bench.grant(1, "pay").await;
    silence(&bench).await;
    assert_eq!(sweeps::sessions(&store).await.expect("sweep").settled, 0);
    assert_eq!(bench.session_state().await, "active");
    let held = bench.text(
        "SELECT (lease_hold_until > now())::text FROM undolog_sessions WHERE session_id = $1",
    );
    assert_eq!(held.await, "true");
    bench.expire(running).await;
    run(bench.db.pool(), "UPDATE undolog_sessions SET lease_hold_until = now()").await;
    sweeps::grants(&store).await.expect("sweep");
    assert_eq!(sweeps::sessions(&store).await.expect("sweep").settled, 1);
    bench.check().await;
}

#[tokio::test]
async fn awaiting_an_approval_suspends_the_lease() {
    let bench = Bench::new().await;
    let store = worker_store(&bench).await;
    bench.begin().await;
    bench.ask(1, "wipe").await.expect("asked");
    silence(&bench).await;
    assert_eq!(sweeps::sessions(&store).await.expect("sweep").settled, 0);
    assert_eq!(bench.session_state().await, "awaiting_approval");
}

#[tokio::test]
async fn an_implicit_session_fails_only_after_a_lost_grant_and_silence() {
    for hold in [false, true] {
        let bench = Bench::new().await;
        let store = worker_store(&bench).await;
        if hold {
            run(bench.db.pool(), "UPDATE undolog_orgs SET on_unknown = 'hold'").await;
        }
        pay(&bench, 1).await;
        silence(&bench).await;
        assert_eq!(sweeps::sessions(&store).await.expect("sweep").settled, 0, "nothing was lost");
        let gone = bench.grant(2, "pay").await;
        bench.expire(gone).await;
        sweeps::grants(&store).await.expect("sweep");
        assert_eq!(sweeps::sessions(&store).await.expect("sweep").settled, 0, "it is heard of");
        silence(&bench).await;
        let failed = sweeps::sessions(&store).await.expect("sweep").settled;
        assert_eq!(failed, u64::from(!hold));
        bench.check().await;
    }
}

#[tokio::test]
async fn an_implicit_session_whose_lost_call_reported_is_an_ordinary_one_again() {
    let bench = Bench::new().await;
    let store = worker_store(&bench).await;
    let gone = bench.grant(1, "pay").await;
    bench.expire(gone).await;
    sweeps::grants(&store).await.expect("sweep");
    bench.commit(gone, &json!(1)).await.expect("a late commit");
    silence(&bench).await;
    assert_eq!(sweeps::sessions(&store).await.expect("sweep").settled, 0);
    let lost = "SELECT (grant_lost_at IS NULL)::text FROM undolog_sessions WHERE session_id = $1";
    assert_eq!(bench.text(lost).await, "true");
    bench.check().await;
}

#[tokio::test]
async fn an_outage_of_an_hour_undoes_nothing() {
    let mut bench = Bench::new().await;
    let store = worker_store(&bench).await;
    many(&mut bench, 12).await;
    silence(&bench).await;
    run(bench.db.pool(), "UPDATE undolog_service SET last_tick_at = now() - interval '1 hour'")
        .await;
    assert_eq!(sweeps::sessions(&store).await.expect("sweep").settled, 0, "nobody ticks");
    // The engine is back: its tick is late, so leases count from now on.
    run(bench.db.pool(), "SELECT undolog_tick('engine')").await;
    let swept = sweeps::sessions(&store).await.expect("sweep");
    assert_eq!((swept.settled, swept.left), (0, 0));
    assert_eq!(states(&bench, "active").await, 12);
}

#[tokio::test]
async fn the_brake_holds_at_sixty_percent_and_then_goes_on_slowly() {
    let mut bench = Bench::new().await;
    let store = worker_store(&bench).await;
    let sessions = many(&mut bench, 50).await;
    run(bench.db.pool(), "UPDATE undolog_sessions SET started_at = started_at WHERE false").await;
    ticks(bench.db.pool()).await;
    sqlx::query(
        "UPDATE undolog_sessions SET lease_renewed_at = now() - interval '1 hour' \
         WHERE session_id = ANY($1)",
    )
    .bind(&sessions[..30])
    .execute(bench.db.pool())
    .await
    .expect("silence");
    let swept = sweeps::sessions(&store).await.expect("sweep");
    assert_eq!((swept.settled, swept.left), (0, 30), "the brake is raised");
    assert_eq!(states(&bench, "active").await, 50);
    let state = "SELECT state FROM undolog_brakes";
    let brake = || async {
        sqlx::query_scalar::<_, String>(state).fetch_one(bench.db.pool()).await.expect("a brake")
    };
    assert_eq!(brake().await, "raised");
    run(bench.db.pool(), "UPDATE undolog_brakes SET hold_until = now()").await;
    let swept = sweeps::sessions(&store).await.expect("sweep");
    assert_eq!((swept.settled, swept.left), (1, 29), "one lease later: slowly");
    assert_eq!(brake().await, "limited");
    run(bench.db.pool(), "UPDATE undolog_brakes SET state = 'stopped'").await;
    assert_eq!(sweeps::sessions(&store).await.expect("sweep").settled, 0);
    run(bench.db.pool(), "UPDATE undolog_brakes SET state = 'forced'").await;
    assert_eq!(sweeps::sessions(&store).await.expect("sweep").settled, 29);
    assert_eq!(brake().await, "forced", "an operator's word stands");
    assert_eq!(states(&bench, "active").await, 20);
}

#[tokio::test]
async fn a_few_lost_sessions_do_not_raise_the_brake() {
    let mut bench = Bench::new().await;
    let store = worker_store(&bench).await;
    many(&mut bench, 3).await;
    silence(&bench).await;
    assert_eq!(sweeps::sessions(&store).await.expect("sweep").settled, 3);
}

#[tokio::test]
async fn idle_implicit_sessions_end_by_policy() {
    for (policy, expected) in
        [("complete", "completed"), ("rollback", "compensating"), ("leave", "active")]
    {
        let bench = Bench::new().await;
        let store = worker_store(&bench).await;
        bench.org.set(bench.db.pool(), "on_idle", policy).await;
        pay(&bench, 1).await;
        silence(&bench).await;
        sweeps::idle(&store).await.expect("sweep");
        assert_eq!(bench.session_state().await, "active", "an hour is not a day");
        run(bench.db.pool(), "UPDATE undolog_orgs SET idle_session_seconds = 1800").await;
        sweeps::idle(&store).await.expect("sweep");
        assert_eq!(bench.session_state().await, expected, "{policy}");
        bench.check().await;
    }
}

#[tokio::test]
async fn an_idle_session_with_something_open_stays() {
    let bench = Bench::new().await;
    let store = worker_store(&bench).await;
    bench.grant(1, "pay").await;
    run(bench.db.pool(), "UPDATE undolog_orgs SET idle_session_seconds = 60").await;
    silence(&bench).await;
    sweeps::idle(&store).await.expect("sweep");
    assert_eq!(bench.session_state().await, "active");
}

#[tokio::test]
async fn a_lost_ticket_is_issued_again_and_many_reapers_make_no_more_rows() {
    let bench = Bench::new().await;
    let store = worker_store(&bench).await;
    pay(&bench, 1).await;
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    let id = rollback_id(&bench).await.to_string();
    let tickets = || async {
        sqlx::query_scalar::<_, i64>(
            "SELECT count(*) FROM apalis.jobs WHERE job ->> 'subject' = $1 AND status = 'Pending'",
        )
        .bind(&id)
        .fetch_one(bench.db.pool())
        .await
        .expect("tickets")
    };
    for lose in ["DELETE FROM apalis.jobs", "UPDATE apalis.jobs SET status = 'Done'"] {
        run(bench.db.pool(), lose).await;
        for _ in 0..5 {
            assert_eq!(sweeps::reaper(&store).await.expect("sweep").settled, 1);
        }
        assert_eq!(tickets().await, 1, "{lose}");
    }
    run(bench.db.pool(), "DELETE FROM apalis.jobs").await;
    let _held = Walker::claim(&bench).await;
    assert_eq!(sweeps::reaper(&store).await.expect("sweep").settled, 0, "a live lease needs none");
}

#[tokio::test]
async fn of_any_number_of_workers_one_runs_a_slot_and_missed_slots_coalesce() {
    let bench = Bench::new().await;
    let store = worker_store(&bench).await;
    let mut tasks = Vec::new();
    for n in 0..16 {
        let store = store.clone();
        tasks.push(tokio::spawn(async move {
            let worker = format!("w-{n}");
            sweeps::claim_slot(&store, Schedule::Grants, 7, &worker).await.expect("claim")
        }));
    }
    let mut won = 0;
    for task in tasks {
        won += u32::from(task.await.expect("no panic"));
    }
    assert_eq!(won, 1);
    assert!(sweeps::claim_slot(&store, Schedule::Grants, 99, "w").await.expect("claim"));
    assert!(!sweeps::claim_slot(&store, Schedule::Grants, 98, "w").await.expect("claim"));
}

#[tokio::test]
async fn due_slots_become_tickets_once() {
    let bench = Bench::new().await;
    let store = worker_store(&bench).await;
    for _ in 0..3 {
        sweeps::enqueue_due(&store).await.expect("enqueue");
    }
    let tickets: i64 = sqlx::query_scalar(
        "SELECT count(DISTINCT job ->> 'subject') FROM apalis.jobs \
         WHERE job_type = 'undolog.maintenance'",
    )
    .fetch_one(bench.db.pool())
    .await
    .expect("tickets");
    assert_eq!(tickets, i64::try_from(Schedule::ALL.len()).expect("few"));
}

#[tokio::test]
async fn old_tickets_and_workers_are_deleted() {
    let bench = Bench::new().await;
    let store = worker_store(&bench).await;
    run(
        bench.db.pool(),
        "INSERT INTO apalis.workers (id, worker_type, storage_name, last_seen) VALUES \
           ('old', 'undolog.rollback', 's', now() - interval '1 hour'), \
           ('new', 'undolog.rollback', 's', now()), \
           ('foreign', 'mail', 's', now() - interval '1 hour'); \
         INSERT INTO apalis.jobs (job, id, job_type, status, done_at, lock_at, lock_by) VALUES \
           ('{}', 'a', 'undolog.rollback', 'Done', now() - interval '1 hour', NULL, 'old'), \
           ('{}', 'b', 'undolog.rollback', 'Running', NULL, now() - interval '1 hour', 'old'), \
           ('{}', 'c', 'undolog.rollback', 'Running', NULL, now(), 'new'), \
           ('{}', 'd', 'undolog.rollback', 'Done', now(), NULL, 'new'), \
           ('{}', 'e', 'mail', 'Done', now() - interval '1 hour', NULL, 'foreign')",
    )
    .await;
    sweeps::cleanup(&store).await.expect("sweep");
    let left: Vec<String> = sqlx::query_scalar(
        "SELECT id FROM apalis.jobs UNION ALL SELECT id FROM apalis.workers ORDER BY 1",
    )
    .fetch_all(bench.db.pool())
    .await
    .expect("rows");
    assert_eq!(left, ["c", "d", "e", "foreign", "new"]);
}
