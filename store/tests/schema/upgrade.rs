//! From the oldest schema that anybody may run to this build's, with rows in every table and a
//! process of the old build writing on.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use apalis_sql::postgres::PostgresStorage;
use sqlx::migrate::Migrator;
use sqlx::{Connection, PgConnection};
use undolog_store::catalog::check_runtime;
use undolog_store::migrate::{migrate, status};

use crate::kit::{ORG_A, Server, count, fill_two_orgs, run};

/// The newest of the migrations that were there before they had to be safe on a live database.
const OLD: i64 = 8;

static OURS: Migrator = sqlx::migrate!("../migrations");

/// A database at the old schema; the roles are the cluster's and come from another database.
async fn old_database(server: &Server) -> PgConnection {
    server.create_database("old").await;
    let mut conn = server.connect("old").await;
    run(
        &mut conn,
        "GRANT CREATE ON DATABASE old TO undolog_owner;
         GRANT USAGE, CREATE ON SCHEMA public TO undolog_owner WITH GRANT OPTION;
         SET ROLE undolog_owner",
    )
    .await;
    let mut queue = PostgresStorage::<()>::migrations();
    queue.set_ignore_missing(true);
    queue.run_direct(&mut conn).await.unwrap();
    let old: Vec<_> = OURS.iter().filter(|m| m.version <= OLD).cloned().collect();
    let mut migrator =
        Migrator { migrations: old.into(), ignore_missing: true, locking: true, no_tx: false };
    migrator.set_ignore_missing(true);
    migrator.run_direct(&mut conn).await.unwrap();
    run(&mut conn, "RESET ROLE; RESET search_path; RESET timezone").await;
    conn
}

/// One row in each table that [`fill_two_orgs`] leaves empty.
async fn fill_the_rest(conn: &mut PgConnection) {
    let (session, effect) =
        ("00000000-0000-7000-8000-00000000002a", "00000000-0000-7000-8000-00000000003a");
    let approval = "00000000-0000-7000-8000-00000000004a";
    run(
        conn,
        &format!(
            "SET ROLE undolog_owner;
             INSERT INTO undolog_api_keys (org_id, key_hash, key_hint, role, principal)
               VALUES ('{ORG_A}', sha256('k'), 'k', 'agent', 'ann');
             INSERT INTO undolog_effect_attempts (effect_id, attempt, org_id, session_id, ended_at,
               state) VALUES ('{effect}', 1, '{ORG_A}', '{session}', now(), 'failed');
             INSERT INTO undolog_undo_attempts (org_id, session_id, undo_id, rollback_id, round,
               number, fence, worker, fn_hash, method, url, result_known, started_at)
               SELECT org_id, session_id, undo_id, gen_random_uuid(), 1, 1, 1, 'w', '', 'POST',
                 'http://x', true, now() FROM undolog_undo_stack WHERE org_id = '{ORG_A}';
             INSERT INTO undolog_rollbacks (org_id, session_id, kind, state, cause, requested_by,
               created_at, due_at, finished_at) VALUES ('{ORG_A}', '{session}', 'partial',
               'compensated', 'operator', 'ann', now(), now(), now());
             INSERT INTO undolog_dead_letters (org_id, session_id, effect_id, reason, created_at)
               VALUES ('{ORG_A}', '{session}', '{effect}', 'OUTCOME_UNKNOWN', now());
             INSERT INTO undolog_brakes (org_id, state, expired, live, raised_at, hold_until)
               VALUES ('{ORG_A}', 'raised', 1, 1, now(), now());
             INSERT INTO undolog_service (service, last_tick_at, resumed_at)
               VALUES ('engine', now(), now());
             INSERT INTO undolog_approval_votes (approval_request_id, org_id, principal,
               args_digest, round, voted_at) VALUES ('{approval}', '{ORG_A}', 'ann', '', 1, now());
             INSERT INTO undolog_pauses (org_id, paused_at, paused_by)
               VALUES ('{ORG_A}', now(), 'ann');
             INSERT INTO undolog_pause_all (paused_by) VALUES ('ann');
             INSERT INTO undolog_breakers (org_id, host, window_started_at)
               VALUES ('{ORG_A}', 'http://x', now());
             INSERT INTO undolog_notifications (org_id, session_id, kind, body, created_at, due_at)
               VALUES ('{ORG_A}', '{session}', 'session_halted', '{{}}', now(), now());
             RESET ROLE"
        ),
    )
    .await;
    work(conn, 0).await.unwrap();
}

/// What the old build writes for one call, in its own columns.
async fn work(conn: &mut PgConnection, n: u32) -> Result<(), sqlx::Error> {
    let mut tx = conn.begin().await?;
    let statement = format!(
        "SET LOCAL ROLE undolog_app; SET LOCAL undolog.current_org_id = '{ORG_A}';
         INSERT INTO undolog_sessions (session_id, org_id, principal, lease_ms, lease_renewed_at)
           VALUES (gen_random_uuid(), '{ORG_A}', 'ann-{n}', 300000, now());
         INSERT INTO undolog_effect_log (org_id, session_id, call_signature, tool_name, tier,
             step_index, args_snapshot, position, state, lease_renewed_at, lease_ms)
           SELECT org_id, session_id, encode(sha256(session_id::text::bytea), 'hex'), 'pay',
             'compensable', 0, '{{}}', 1, 'executing', now(), 60000
           FROM undolog_sessions WHERE principal = 'ann-{n}' AND org_id = '{ORG_A}';
         INSERT INTO undolog_undo_stack (org_id, session_id, effect_id, stack_position,
             compensation_fn, compensation_args)
           SELECT e.org_id, e.session_id, e.effect_id, 1, 'refund', '{{}}'
           FROM undolog_effect_log e JOIN undolog_sessions s USING (session_id)
           WHERE s.principal = 'ann-{n}' AND s.org_id = '{ORG_A}';
         INSERT INTO undolog_signatures (session_month, org_id, session_id, call_signature,
             effect_id, step_index)
           SELECT e.session_month, e.org_id, e.session_id, call_signature, effect_id, 0
           FROM undolog_effect_log e JOIN undolog_sessions s USING (session_id)
           WHERE s.principal = 'ann-{n}' AND s.org_id = '{ORG_A}';
         INSERT INTO undolog_effect_events (session_month, org_id, session_id, seq, kind, subject,
             subject_id, actor, occurred_at)
           SELECT session_month, org_id, session_id, 1, 'session_begun', 'session', session_id,
             'ann', now()
           FROM undolog_sessions WHERE principal = 'ann-{n}' AND org_id = '{ORG_A}';
         UPDATE undolog_effect_log e SET state = 'committed', committed_at = now(),
             lease_ms = NULL, result_snapshot = '{{}}'
           FROM undolog_sessions s WHERE s.session_id = e.session_id AND s.principal = 'ann-{n}';
         UPDATE undolog_sessions SET state = 'completed', completed_at = now(), event_seq = 1
           WHERE principal = 'ann-{n}'"
    );
    sqlx::raw_sql(&statement).execute(&mut *tx).await?;
    tx.commit().await
}

#[tokio::test]
async fn a_full_database_is_migrated_while_the_old_build_writes_on() {
    let (server, _) = Server::migrated("upgrade").await;
    let mut conn = old_database(&server).await;
    fill_two_orgs(&mut conn).await;
    fill_the_rest(&mut conn).await;
    for table in tables(&mut conn).await {
        assert!(count(&mut conn, &table).await > 0, "{table} is empty, so this says nothing of it");
    }

    let (done, written) = (AtomicBool::new(false), AtomicU32::new(0));
    let writing = async {
        let mut conn = server.connect("old").await;
        // What a process of ours waits for a lock.
        run(&mut conn, "SET lock_timeout = '10s'").await;
        while !done.load(Ordering::Relaxed) {
            let n = written.fetch_add(1, Ordering::Relaxed) + 1;
            if let Err(error) = work(&mut conn, n).await {
                panic!("call {n} of the old build failed: {error}");
            }
        }
    };
    let migrating = async {
        let report = migrate(&server.url("old")).await.unwrap();
        // The old build goes on until it is replaced.
        let during = written.load(Ordering::Relaxed);
        while written.load(Ordering::Relaxed) < during + 3 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        done.store(true, Ordering::Relaxed);
        report
    };
    let (report, ()) = tokio::join!(migrating, writing);

    assert!(report.applied.iter().all(|m| m.version > OLD), "{report:?}");
    assert_eq!(report.constraints_unchecked, Vec::<String>::new());
    assert!(status(&server.url("old")).await.unwrap().is_current());
    for role in ["undolog_app", "undolog_worker"] {
        let mut conn = PgConnection::connect(&server.url_as(role, "old")).await.unwrap();
        check_runtime(&mut conn).await.unwrap();
    }
    for table in tables(&mut conn).await {
        run(&mut conn, &format!("SELECT * FROM {table}")).await;
    }
    let kept: i64 = sqlx::query_scalar("SELECT count(*) FROM undolog_effect_log")
        .fetch_one(&mut conn)
        .await
        .unwrap();
    assert_eq!(kept, i64::from(written.load(Ordering::Relaxed)) + 3);
}

/// A fresh database and an old one that was migrated have the same columns, indexes and rules.
#[tokio::test]
async fn an_old_database_ends_like_a_fresh_one() {
    let (server, _) = Server::migrated("alike").await;
    let mut old = old_database(&server).await;
    fill_two_orgs(&mut old).await;
    migrate(&server.url("old")).await.unwrap();
    let mut fresh = server.connect("postgres").await;
    assert_eq!(shape(&mut old).await, shape(&mut fresh).await);
}

async fn shape(conn: &mut PgConnection) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT format('%s.%s %s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
                a.attnotnull)
         FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
         WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v')
           AND a.attnum > 0 AND NOT a.attisdropped
         UNION ALL SELECT format('%s valid %s', indexdef, indisvalid)
         FROM pg_indexes JOIN pg_index ON indexrelid = (schemaname || '.' || indexname)::regclass
         WHERE schemaname = 'public'
         UNION ALL SELECT format('%s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
         FROM pg_constraint WHERE connamespace = 'public'::regnamespace
         ORDER BY 1",
    )
    .fetch_all(conn)
    .await
    .unwrap()
}

/// Our tables, without partitions.
async fn tables(conn: &mut PgConnection) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT relname::text FROM pg_class
         WHERE relnamespace = 'public'::regnamespace AND relname LIKE 'undolog\\_%'
           AND relkind IN ('r', 'p') AND NOT relispartition ORDER BY 1",
    )
    .fetch_all(conn)
    .await
    .unwrap()
}
