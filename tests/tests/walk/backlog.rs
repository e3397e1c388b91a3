//! What a worker's metrics say of the rollbacks that wait, and of what keeps the database from
//! removing dead rows.

use std::collections::BTreeMap;

use undolog_core::retry::CallOutcome;
use undolog_store::{Store, StoreOptions, backlog, sessions::RollbackScope, walk::Next};
use undolog_tests::{
    eventually,
    run::{Worker, WorkerOptions},
};
use uuid::Uuid;

use crate::{
    bench::Bench,
    walker::{Walker, pay, report_of, run, time_passes, worker_store},
};

async fn counted(store: &Store) -> BTreeMap<String, i64> {
    let found = backlog::rollbacks(store).await.expect("the backlog");
    for (kind, _) in &found {
        assert!(backlog::KINDS.contains(&kind.as_str()), "{kind} has no gauge");
    }
    found.into_iter().collect()
}

fn only(kind: &str) -> BTreeMap<String, i64> {
    BTreeMap::from([(kind.to_owned(), 1)])
}

/// A new session with a payment whose rollback is due.
async fn due(bench: &mut Bench) {
    bench.session = Uuid::new_v4();
    pay(bench, 1).await;
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
}

/// Claims the rollback and takes one step, which makes no call.
async fn waits(bench: &Bench) {
    time_passes(bench).await;
    let next = Walker::claim(bench).await.step(None).await;
    assert!(matches!(next, Next::Waiting), "{next:?}");
}

async fn over(bench: &Bench) {
    run(bench.db.pool(), "DELETE FROM undolog_rollbacks").await;
}

#[tokio::test]
async fn a_rollback_that_waits_says_what_for() {
    let mut bench = Bench::new().await;
    let store = worker_store(&bench).await;
    let sql = bench.db.pool().clone();
    assert_eq!(counted(&store).await, BTreeMap::new());

    due(&mut bench).await;
    assert_eq!(counted(&store).await, only("due"));
    let walker = Walker::claim(&bench).await;
    assert_eq!(counted(&store).await, only("running"));
    let call = Walker::call(walker.step(None).await);
    assert_eq!(counted(&store).await, only("running"));
    walker.step(Some(report_of(&call, CallOutcome::Retry))).await;
    assert_eq!(counted(&store).await, only("retry"));
    time_passes(&bench).await;
    assert_eq!(counted(&store).await, only("due"), "its time has come");
    over(&bench).await;

    due(&mut bench).await;
    let org = bench.org.id;
    let pause = format!("INSERT INTO undolog_pauses VALUES ('{org}', '', now(), 'op', 'why')");
    run(&sql, &pause).await;
    waits(&bench).await;
    assert_eq!(counted(&store).await, only("pause"));
    run(&sql, "DELETE FROM undolog_pauses").await;

    let open = "INSERT INTO undolog_route_breakers (org_id, compensation_fn, host, state, \
        window_started_at, opened_at, opened_count) \
        SELECT DISTINCT org_id, 'undo_pay', host, 'open', now(), now(), 1 \
        FROM undolog_undo_attempts";
    run(&sql, open).await;
    waits(&bench).await;
    assert_eq!(counted(&store).await, only("breaker"));
    run(&sql, "DELETE FROM undolog_route_breakers").await;

    run(&sql, "UPDATE undolog_compensation_registry SET rate_per_minute = 1").await;
    run(&sql, "UPDATE undolog_orgs SET registry_epoch = registry_epoch + 1").await;
    let walker = {
        time_passes(&bench).await;
        Walker::claim(&bench).await
    };
    Walker::call(walker.step(None).await);
    let held = bench.session;
    due(&mut bench).await;
    waits(&bench).await;
    let wanted = BTreeMap::from([("limit".to_owned(), 1), ("running".to_owned(), 1)]);
    assert_eq!(counted(&store).await, wanted, "{held} is under way");
    over(&bench).await;

    bench.session = Uuid::new_v4();
    bench.grant(1, "pay").await;
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    waits(&bench).await;
    assert_eq!(counted(&store).await, only("calls"));
    time_passes(&bench).await;
    let claim = Walker::claim(&bench).await.claim;
    undolog_store::walk::postpone(&store, &claim, 60_000).await.expect("postpone");
    assert_eq!(counted(&store).await, only("worker"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_worker_shows_the_backlog_and_the_oldest_snapshot() {
    let mut bench = Bench::new().await;
    let org = bench.org.id;
    let pause = format!("INSERT INTO undolog_pauses VALUES ('{org}', '', now(), 'op', 'why')");
    run(bench.db.pool(), &pause).await;
    due(&mut bench).await;
    let mut workers = Vec::new();
    for _ in 0..2 {
        workers.push(Worker::start(bench.db.url(), WorkerOptions::default()).await);
    }
    for worker in &workers {
        let url = worker.http_url("/metrics");
        eventually("the gauges say what waits", || async {
            let page = undolog_tests::http_get(url.clone()).await.expect("a page");
            let page = page.text().await.expect("a text");
            let wanted = [
                "undolog_rollbacks{waits_for=\"pause\"} 1",
                "undolog_rollbacks{waits_for=\"breaker\"} 0",
                "undolog_oldest_snapshot_seconds ",
            ];
            if wanted.iter().all(|line| page.contains(line)) { Ok(()) } else { Err(page) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_snapshot_of_the_own_login_is_seen_without_any_right() {
    let bench = Bench::new().await;
    let login = format!("rest_{}", Uuid::new_v4().simple());
    let make = format!("CREATE ROLE {login} LOGIN; GRANT undolog_worker TO {login}");
    run(bench.db.pool(), &make).await;
    let (_, rest) = bench.db.url().split_once('@').expect("a URL with a login");
    let url = format!("postgres://{login}@{rest}");
    let options = StoreOptions::new(url.into(), Some("undolog_worker"), "worker");
    let store = Store::connect(&options).await.expect("connect");
    let age = || async { backlog::oldest_snapshot_seconds(&store).await.expect("an age") };

    // Somebody else's is not seen without pg_monitor, and is with it.
    let mut other = bench.db.pool().begin().await.expect("a transaction");
    snapshot(&mut other).await;
    assert!(age().await < 0.001, "somebody else's");
    run(bench.db.pool(), &format!("GRANT pg_monitor TO {login}")).await;
    let seen = age().await;
    assert!(seen > 0.0, "with pg_monitor");
    run(bench.db.pool(), &format!("REVOKE pg_monitor FROM {login}")).await;

    let mut own = store.pool().begin().await.expect("a transaction");
    snapshot(&mut own).await;
    eventually("it gets older", || async {
        let now = age().await;
        if now > 0.2 { Ok(()) } else { Err(now) }
    })
    .await;
    own.rollback().await.expect("its end");
    eventually("it is gone", || async {
        let now = age().await;
        if now < 0.2 { Ok(()) } else { Err(now) }
    })
    .await;
}

/// Takes a snapshot that stays.
async fn snapshot(tx: &mut sqlx::Transaction<'_, sqlx::Postgres>) {
    for sql in ["SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SELECT 1"] {
        sqlx::query(sql).execute(&mut **tx).await.expect(sql);
    }
}
