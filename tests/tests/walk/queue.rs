//! Faults of the queue around a worker: lost connections, lost rows, publications.

use std::time::Duration;

use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPool};
use undolog_store::sessions::RollbackScope;
use undolog_tests::{eventually, within, witness::Witness};
use uuid::Uuid;

use crate::{
    bench::Bench,
    process::Running,
    walker::{pay, run},
};

/// A bench whose queue is as its library made it, when the guard `migrate.fit` is off.
async fn bench() -> Bench {
    let bench = Bench::new().await;
    if !undolog_store::testkit::guard_on("migrate.fit") {
        let unfit = "ALTER TABLE apalis.jobs ENABLE TRIGGER notify_workers; \
            ALTER TABLE apalis.jobs REPLICA IDENTITY DEFAULT; \
            ALTER TABLE apalis.workers REPLICA IDENTITY DEFAULT; \
            ALTER TABLE apalis.jobs ADD CONSTRAINT fk_worker_lock_by \
              FOREIGN KEY (lock_by) REFERENCES apalis.workers (id)";
        run(bench.db.pool(), unfit).await;
    }
    bench
}

async fn undone_at(bench: &Bench, witness: &Witness) {
    let body = json!({
        "endpoint": witness.url("/undo/pay"), "arg_mapping": {"id": "{result.id}"},
        "done_statuses": [404],
    });
    bench.compensation("undo_pay", body).await;
}

/// A session's rollback begins and ends.
async fn is_undone(bench: &mut Bench, limit: Duration) {
    bench.session = Uuid::new_v4();
    pay(bench, 1).await;
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    within(limit, "the rollback ends", || async {
        let state = bench.session_state().await;
        if state == "compensated" { Ok(()) } else { Err(state) }
    })
    .await;
}

/// How many connections of a database listen for tickets. Asked from another one, so that this does
/// not need what the test takes away.
async fn listeners(elsewhere: &PgPool, database: &str) -> i64 {
    sqlx::query_scalar(
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%apalis%' \
         AND datname = $1",
    )
    .bind(database)
    .fetch_one(elsewhere)
    .await
    .expect("count")
}

async fn listens(elsewhere: &PgPool, database: &str) {
    within(Duration::from_secs(60), "the worker listens", || async {
        match listeners(elsewhere, database).await {
            0 => Err("nobody listens"),
            _ => Ok(()),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn announcements_wake_the_queue_again_after_their_connection_was_lost() {
    let mut bench = bench().await;
    let witness = Witness::start().await;
    undone_at(&bench, &witness).await;
    // Nothing is found by polling within this test.
    let worker = Running::start(&bench, |options| {
        options.poll_interval_ms = 600_000;
        options.store.acquire_timeout_ms = 500;
    })
    .await;
    let options: PgConnectOptions = bench.db.url().parse().expect("a URL");
    let database = options.get_database().expect("a name").to_owned();
    let elsewhere = PgPool::connect_with(options.database("postgres")).await.expect("connect");
    listens(&elsewhere, &database).await;
    is_undone(&mut bench, Duration::from_secs(30)).await;
    // Nobody of the worker gets in, for longer than its pool waits for a connection.
    let closed = format!("ALTER DATABASE \"{database}\" ALLOW_CONNECTIONS false");
    sqlx::raw_sql(&closed).execute(&elsewhere).await.expect("close the door");
    sqlx::query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE datname = $1 AND application_name = 'worker'",
    )
    .bind(&database)
    .execute(&elsewhere)
    .await
    .expect("end the worker's connections");
    within(Duration::from_secs(30), "the listener has seen it", || async {
        match listeners(&elsewhere, &database).await {
            0 => Ok(()),
            n => Err(n),
        }
    })
    .await;
    // It has tried to come back, and could not. The library's own listener ends for good there.
    let began = std::time::Instant::now();
    within(Duration::from_secs(30), "its tries are refused", || async {
        let passed = began.elapsed();
        if passed > Duration::from_secs(2) { Ok(()) } else { Err(passed) }
    })
    .await;
    let open = format!("ALTER DATABASE \"{database}\" ALLOW_CONNECTIONS true");
    sqlx::raw_sql(&open).execute(&elsewhere).await.expect("open the door");
    listens(&elsewhere, &database).await;
    is_undone(&mut bench, Duration::from_secs(60)).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publication_of_all_tables_stops_no_rollback() {
    let mut bench = bench().await;
    let witness = Witness::start().await;
    undone_at(&bench, &witness).await;
    run(bench.db.pool(), "CREATE PUBLICATION everything FOR ALL TABLES").await;
    let worker = Running::start(&bench, |_| {}).await;
    is_undone(&mut bench, Duration::from_secs(60)).await;
    worker.stop().await;
}

#[tokio::test]
async fn every_table_says_which_row_it_changes() {
    let bench = bench().await;
    let without: Vec<String> = sqlx::query_scalar(
        "SELECT c.oid::regclass::text FROM pg_class c \
         JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.relkind IN ('r', 'p') AND n.nspname IN ('public', 'apalis') \
         AND c.relreplident = 'd' \
         AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)",
    )
    .fetch_all(bench.db.pool())
    .await
    .expect("tables");
    assert_eq!(without, Vec::<String>::new(), "no replica identity");
}

#[tokio::test]
async fn nothing_is_announced_that_nobody_listens_to() {
    let bench = bench().await;
    let mut listener = sqlx::postgres::PgListener::connect(bench.db.url()).await.expect("connect");
    listener.listen("apalis::job").await.expect("listen");
    run(
        bench.db.pool(),
        "SELECT undolog_enqueue('01ARZ3NDEKTSV4RRFFQ69G5FAV', 'undolog.rollback', '{}', \
         now() + interval '1 hour'); \
         SELECT undolog_enqueue('01ARZ3NDEKTSV4RRFFQ69G5FAW', 'undolog.rollback', '{}', now())",
    )
    .await;
    let heard = listener.recv().await.expect("an announcement");
    assert_eq!(heard.payload(), "undolog.rollback", "what is due, by its queue, and nothing else");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_loses_its_rows_all_the_time_makes_progress() {
    let mut bench = bench().await;
    let witness = Witness::start().await;
    undone_at(&bench, &witness).await;
    let worker = Running::start(&bench, |_| {}).await;
    let pool = bench.db.pool().clone();
    let losing = tokio::spawn(async move {
        let lose = "DELETE FROM apalis.jobs WHERE random() < 0.5; DELETE FROM apalis.workers";
        let mut every = tokio::time::interval(Duration::from_millis(20));
        loop {
            every.tick().await;
            // A deadlock with a worker's own statement costs this round and nothing else.
            let _ = sqlx::raw_sql(lose).execute(&pool).await;
        }
    });
    is_undone(&mut bench, Duration::from_secs(60)).await;
    losing.abort();
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_that_tell_something_do_not_wait_for_each_other() {
    let bench = Bench::new().await;
    let webhook = "UPDATE undolog_orgs SET webhook_url = 'https://hooks.example/x', \
        webhook_secret = 'HOOK'";
    run(bench.db.pool(), webhook).await;
    // Whoever writes the organisation's ticket waits for this transaction.
    bench.ask(1, "wipe").await.expect("asked");
    eventually("the ticket is there", || async {
        let tickets: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM apalis.jobs WHERE job ->> 'kind' = 'notification'",
        )
        .fetch_one(bench.db.pool())
        .await
        .expect("tickets");
        if tickets == 1 { Ok(()) } else { Err(tickets) }
    })
    .await;
    let mut holder = bench.db.pool().begin().await.expect("a transaction");
    sqlx::query("SELECT FROM apalis.jobs WHERE job ->> 'kind' = 'notification' FOR UPDATE")
        .execute(&mut *holder)
        .await
        .expect("hold the ticket");
    bench.ask(2, "wipe").await.expect("it waits for nobody");
    let told: i64 = bench.count("undolog_notifications").await;
    assert_eq!(told, 2);
    holder.rollback().await.expect("let go");
}

#[tokio::test]
async fn all_that_a_busy_minute_leaves_is_deleted_in_one_run() {
    let bench = bench().await;
    let store = crate::walker::worker_store(&bench).await;
    run(
        bench.db.pool(),
        "INSERT INTO apalis.jobs (job, id, job_type, status, done_at) \
         SELECT '{}', 'over-' || n, 'undolog.rollback', 'Done', now() - interval '1 hour' \
         FROM generate_series(1, 25000) AS n",
    )
    .await;
    undolog_store::sweeps::cleanup(&store).await.expect("sweep");
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM apalis.jobs WHERE id LIKE 'over-%'")
        .fetch_one(bench.db.pool())
        .await
        .expect("a count");
    assert_eq!(left, 0, "20,000 tickets a minute were too few");
}
