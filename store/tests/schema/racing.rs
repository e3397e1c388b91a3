//! Migrations that are repeated, raced, and shared with the queue library's own.

use apalis_sql::postgres::PostgresStorage;
use sqlx::{Connection, Executor, PgConnection, PgPool};
use undolog_store::catalog::check_runtime;
use undolog_store::migrate::{ROLES, Source, migrate, status};

use crate::kit::{Server, run, until};

/// A migration waits for a lock.
const QUEUED: &str = "SELECT count(*) > 0 FROM pg_stat_activity
    WHERE application_name = 'undolog-migrate' AND wait_event_type = 'Lock'";

/// Both sources are complete, each migration once, and the runtime roles may start.
async fn assert_complete(server: &Server, database: &str) {
    let status = status(&server.url(database)).await.unwrap();
    assert!(status.is_current(), "{status:?}");
    let mut conn = server.connect(database).await;
    let (all, own): (i64, i64) = sqlx::query_as(
        "SELECT (SELECT count(*) FROM public._sqlx_migrations),
                (SELECT count(*) FROM public.undolog_schema_migrations)",
    )
    .fetch_one(&mut conn)
    .await
    .unwrap();
    assert_eq!(all, i64::try_from(status.migrations.len()).unwrap());
    let ours = status.migrations.iter().filter(|m| m.source == Source::UndoLog).count();
    assert_eq!(own, i64::try_from(ours).unwrap(), "every migration writes its own row too");
    for role in ["undolog_app", "undolog_worker"] {
        let mut conn = PgConnection::connect(&server.url_as(role, database)).await.unwrap();
        check_runtime(&mut conn).await.unwrap();
    }
}

#[tokio::test]
async fn a_second_run_changes_nothing() {
    let (server, first) = Server::migrated("twice").await;
    assert_eq!(first.roles_created, ROLES);
    assert!(first.applied.len() >= 12, "{first:?}");
    assert_eq!(first.already_applied, 0);
    let second = migrate(&server.url("postgres")).await.unwrap();
    assert_eq!(second.already_applied, first.applied.len());
    assert!(second.applied.is_empty() && second.roles_created.is_empty(), "{second:?}");
    assert!(second.grants.is_empty(), "{second:?}");
    assert!(!first.indexes_built.is_empty() && second.indexes_built.is_empty(), "{second:?}");
    assert_complete(&server, "postgres").await;
}

#[tokio::test]
async fn many_may_migrate_one_database_at_once() {
    let server = Server::start("race-one");
    let url = server.url("postgres");
    let runs = futures::future::join_all((0..6).map(|_| migrate(&url))).await;
    let applied: Vec<usize> = runs.into_iter().map(|run| run.unwrap().applied.len()).collect();
    assert_eq!(applied.iter().filter(|n| **n > 0).count(), 1, "{applied:?}");
    assert_complete(&server, "postgres").await;
}

#[tokio::test]
async fn databases_of_one_cluster_may_be_migrated_at_once() {
    let server = Server::start("race-many");
    let names: Vec<String> = (0..4).map(|n| format!("tenant_{n}")).collect();
    for name in &names {
        server.create_database(name).await;
    }
    // The roles belong to the cluster: whoever comes first makes them.
    let urls: Vec<String> = names.iter().map(|name| server.url(name)).collect();
    let runs = futures::future::join_all(urls.iter().map(|url| migrate(url))).await;
    let created: usize = runs.into_iter().map(|run| run.unwrap().roles_created.len()).sum();
    assert_eq!(created, ROLES.len());
    for name in &names {
        assert_complete(&server, name).await;
    }
}

#[tokio::test]
async fn a_role_that_another_migration_is_making_is_taken_as_made() {
    let server = Server::start("race-role");
    let mut other = server.connect("postgres").await;
    run(&mut other, "BEGIN; CREATE ROLE undolog_worker NOLOGIN").await;
    let url = server.url("postgres");
    let waiting = tokio::spawn(async move { migrate(&url).await });
    until(&mut server.connect("postgres").await, QUEUED, true).await;
    run(&mut other, "COMMIT").await;
    let report = waiting.await.unwrap().unwrap();
    assert!(!report.roles_created.contains(&"undolog_worker".to_owned()), "{report:?}");
    assert_complete(&server, "postgres").await;
}

#[tokio::test]
async fn the_queues_own_set_up_may_come_first_or_second() {
    let server = Server::start("queue");
    server.create_database("first").await;
    let pool = PgPool::connect(&server.url("first")).await.unwrap();
    PostgresStorage::setup(&pool).await.unwrap();
    migrate(&server.url("first")).await.unwrap();
    assert_complete(&server, "first").await;
    // What it made stays its own, and our owner may use it.
    let owner: String = sqlx::query_scalar(
        "SELECT pg_get_userbyid(nspowner)::text FROM pg_namespace WHERE nspname = 'apalis'",
    )
    .fetch_one(&pool)
    .await
    .unwrap();
    assert_eq!(owner, "postgres");
    pool.execute("SET ROLE undolog_owner; SELECT * FROM apalis.jobs; RESET ROLE").await.unwrap();

    server.create_database("second").await;
    migrate(&server.url("second")).await.unwrap();
    let pool = PgPool::connect(&server.url("second")).await.unwrap();
    let mut theirs = PostgresStorage::<()>::migrations();
    theirs.set_ignore_missing(true);
    theirs.run(&pool).await.unwrap();
    assert_complete(&server, "second").await;

    // A later release of the library can bring back what was fitted, after our migrations.
    server.create_database("third").await;
    migrate(&server.url("third")).await.unwrap();
    let mut conn = server.connect("third").await;
    let fitted = queue_schema(&mut conn).await;
    let again = "ALTER TABLE apalis.jobs ENABLE TRIGGER notify_workers;
        ALTER TABLE apalis.jobs ADD CONSTRAINT fk_worker_lock_by FOREIGN KEY (lock_by)
            REFERENCES apalis.workers (id);
        ALTER TABLE apalis.jobs REPLICA IDENTITY DEFAULT;
        ALTER TABLE apalis.workers REPLICA IDENTITY DEFAULT;
        DROP INDEX apalis.idx_undolog_jobs_due";
    run(&mut conn, again).await;
    assert_ne!(queue_schema(&mut conn).await, fitted);
    migrate(&server.url("third")).await.unwrap();
    for database in ["first", "second", "third"] {
        let found = queue_schema(&mut server.connect(database).await).await;
        assert_eq!(found, fitted, "{database}");
    }
    let has = |what: &str| fitted.iter().any(|line| line.starts_with(what));
    assert!(has("trigger notify_workers D"), "it notifies nobody: {fitted:?}");
    assert!(!has("constraint fk_worker_lock_by"), "{fitted:?}");
    assert!(has("identity jobs i") && has("identity workers i"), "{fitted:?}");
    assert!(has("index CREATE INDEX idx_undolog_jobs_due"), "{fitted:?}");
}

/// The queue's triggers, constraints, indexes and replica identities.
async fn queue_schema(conn: &mut PgConnection) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT format('trigger %s %s %s', t.tgname, t.tgenabled, pg_get_triggerdef(t.oid))
         FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
         WHERE c.relnamespace = 'apalis'::regnamespace AND NOT t.tgisinternal
         UNION ALL
         SELECT format('constraint %s %s', conname, pg_get_constraintdef(oid))
         FROM pg_constraint WHERE connamespace = 'apalis'::regnamespace
         UNION ALL
         SELECT 'index ' || indexdef FROM pg_indexes WHERE schemaname = 'apalis'
         UNION ALL
         SELECT format('identity %s %s', relname, relreplident)
         FROM pg_class WHERE relnamespace = 'apalis'::regnamespace AND relkind = 'r'
         ORDER BY 1",
    )
    .fetch_all(conn)
    .await
    .unwrap()
}

#[tokio::test]
async fn the_worker_may_use_the_queue() {
    let (server, _) = Server::migrated("queue-rights").await;
    let url = server.url_as("undolog_worker", "postgres");
    let mut conn = PgConnection::connect(&url).await.unwrap();
    run(
        &mut conn,
        "INSERT INTO apalis.workers (id, worker_type, storage_name) VALUES ('w', 't', 's');
         INSERT INTO apalis.jobs (job, id, job_type, run_at) VALUES ('1', 'j', 't', '2000-01-01');
         SELECT * FROM apalis.get_jobs('w', 't', 1);
         DELETE FROM apalis.jobs; DELETE FROM apalis.workers;",
    )
    .await;
}

#[tokio::test]
async fn a_changed_queue_schema_is_refused() {
    let (server, _) = Server::migrated("queue-contract").await;
    let mut conn = server.connect("postgres").await;
    run(&mut conn, "ALTER TABLE apalis.jobs RENAME COLUMN lock_by TO locked_by").await;
    let error = migrate(&server.url("postgres")).await.unwrap_err().to_string();
    assert!(error.contains("missing [apalis.jobs.lock_by text]"), "{error}");
}

#[tokio::test]
async fn the_connections_presets_do_not_matter() {
    let server = Server::start("presets");
    server.create_database("strange").await;
    run(
        &mut server.connect("strange").await,
        "CREATE SCHEMA elsewhere; CREATE TABLE elsewhere._sqlx_migrations (nothing int);
         ALTER DATABASE strange SET search_path = elsewhere;
         ALTER DATABASE strange SET statement_timeout = '40ms';
         ALTER DATABASE strange SET timezone = 'Pacific/Kiritimati';
         ALTER DATABASE strange SET default_transaction_isolation = 'serializable';",
    )
    .await;
    migrate(&server.url("strange")).await.unwrap();
    // A URL that acts as a runtime role still migrates with the login's own rights.
    migrate(&server.url_as("undolog_app", "strange")).await.unwrap();
    let mut conn = server.connect("strange").await;
    let stray: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pg_class WHERE relnamespace = 'elsewhere'::regnamespace
         AND relname <> '_sqlx_migrations'",
    )
    .fetch_one(&mut conn)
    .await
    .unwrap();
    assert_eq!(stray, 0);
    run(&mut conn, "ALTER DATABASE strange RESET statement_timeout").await;
    assert_complete(&server, "strange").await;
}

#[tokio::test]
async fn a_busy_table_is_let_go_and_tried_again() {
    let (server, _) = Server::migrated("busy").await;
    let mut holder = server.connect("postgres").await;
    // As if 0002 were still to come; it may run twice.
    run(
        &mut holder,
        "DELETE FROM _sqlx_migrations WHERE version = 2;
         DELETE FROM undolog_schema_migrations WHERE version = '0002';",
    )
    .await;
    run(&mut holder, "BEGIN; LOCK TABLE undolog_schema_migrations IN ACCESS EXCLUSIVE MODE").await;
    let url = server.url("postgres");
    let waiting = tokio::spawn(async move { migrate(&url).await });
    let mut watcher = server.connect("postgres").await;
    until(&mut watcher, QUEUED, true).await;
    // It gives up its place in the queue, in which everybody would stand behind it, and comes back.
    until(&mut watcher, QUEUED, false).await;
    run(&mut holder, "ROLLBACK").await;
    let report = waiting.await.unwrap().unwrap();
    assert_eq!(report.applied.len(), 1, "{report:?}");
    assert_complete(&server, "postgres").await;
}
