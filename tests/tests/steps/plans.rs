//! Lists that operators look at are read from an index, however much lies beside.

use sqlx::{Connection as _, Executor as _, PgConnection};
use undolog_tests::pg::TestDb;
use undolog_tests::world::Org;

const UNKNOWN: &str = include_str!("../../../store/sql/operate_unknown.sql");
const APPROVALS: &str = include_str!("../../../store/sql/approval_list.sql");
const NOTIFICATIONS: &str = include_str!("../../../store/sql/notify_list.sql");

/// How Postgres would run a statement: once for these values, once for any.
async fn plans(conn: &mut PgConnection, sql: &str, values: &str) -> [String; 2] {
    let mut plans = Vec::new();
    for mode in ["force_custom_plan", "force_generic_plan"] {
        conn.execute(format!("SET plan_cache_mode = {mode}").as_str()).await.expect("a mode");
        let prepare = format!("PREPARE looked AS {sql}");
        sqlx::raw_sql(&prepare).execute(&mut *conn).await.expect("prepare");
        let explain = format!("EXPLAIN (COSTS OFF) EXECUTE looked({values})");
        let lines: Vec<String> = sqlx::query_scalar(&explain)
            .persistent(false)
            .fetch_all(&mut *conn)
            .await
            .expect("a plan");
        conn.execute("DEALLOCATE looked").await.expect("forget it");
        plans.push(lines.join("\n"));
    }
    plans.try_into().expect("two plans")
}

/// One organisation with a long past: decided approvals, finished effects, sent notifications.
async fn past(db: &TestDb) -> Org {
    let org = Org::create(db.pool(), "acme").await;
    let seed = format!(
        "SET session_replication_role = replica; \
         INSERT INTO undolog_sessions (session_id, org_id, project_id, state) \
           SELECT uuidv7_or_random(), '{0}', NULL, 'active' FROM generate_series(1, 200); \
         INSERT INTO undolog_approval_requests (org_id, session_id, effect_id, tool_name, \
             irreversibility_reason, proposed_args, state, timeout_at, created_at) \
           SELECT '{0}', s.session_id, uuidv7_or_random(), 'wipe', 'gone', '{{}}', \
             (CASE WHEN n % 50 = 0 THEN 'rejected' ELSE 'approved' END)::undolog_approval_state, \
             now(), now() - n * interval '1 second' \
           FROM (SELECT session_id, row_number() OVER () AS k FROM undolog_sessions) s, \
             LATERAL (SELECT s.k * 100 + i AS n FROM generate_series(1, 100) i) x; \
         INSERT INTO undolog_effect_log (org_id, session_id, call_signature, tool_name, tier, \
             step_index, args_snapshot, state, committed_at, outcome, position, executed_at) \
           SELECT '{0}', s.session_id, encode(sha256((s.k * 100 + i)::text::bytea), 'hex'), 'pay', \
             'compensable', i, '{{}}', \
             (CASE WHEN i = 7 THEN 'failed' ELSE 'committed' END)::undolog_effect_state, now(), \
             CASE WHEN i = 7 THEN 'not_applied' END, i, now() \
           FROM (SELECT session_id, row_number() OVER () AS k FROM undolog_sessions) s, \
             generate_series(1, 100) i; \
         INSERT INTO undolog_notifications (org_id, session_id, kind, body, created_at, due_at, \
             state, finished_at) \
           SELECT '{0}', s.session_id, 'approval_resolved', '{{}}', \
            now() - i * interval '1 second', \
             now(), CASE WHEN i = 7 THEN 'failed' ELSE 'sent' END, now() \
           FROM undolog_sessions s, generate_series(1, 100) i; \
         SET session_replication_role = origin; ANALYZE",
        org.id
    );
    sqlx::raw_sql(&seed).execute(db.pool()).await.expect("a past");
    org
}

#[tokio::test]
async fn what_operators_list_is_read_from_an_index() {
    let db = TestDb::new().await;
    let org = past(&db).await;
    let mut conn = PgConnection::connect(db.url()).await.expect("connect");
    let id = format!("'{}'", org.id);
    // The other months hold nothing, and are read as they like.
    let month: String = sqlx::query_scalar(
        "SELECT 'undolog_effect_log_' || to_char(now() AT TIME ZONE 'UTC', 'YYYY_MM')",
    )
    .fetch_one(&mut conn)
    .await
    .expect("this month's partition");
    let lists = [
        (
            UNKNOWN,
            format!("{id}, NULL, NULL, NULL, NULL, 101, 3000000, NULL, NULL, NULL"),
            "uncertain",
            month.as_str(),
        ),
        (
            APPROVALS,
            format!(
                "{id}, NULL, '{{approved,rejected}}', NULL, now(), {id}, 101, 3000000, NULL, NULL"
            ),
            "approval_listed",
            "undolog_approval_requests",
        ),
        (
            NOTIFICATIONS,
            format!("{id}, '{{failed}}', now(), {id}, 101"),
            "notifications_listed",
            "undolog_notifications",
        ),
    ];
    for (sql, values, index, table) in &lists {
        for plan in plans(&mut conn, sql, values).await {
            // The index of a partition is named after the partition and the columns.
            let is_used = plan.contains(index) || plan.contains("_org_id_coalesce_effect_id_idx");
            assert!(is_used && !plan.contains(&format!("Seq Scan on {table}")), "{plan}");
        }
    }
    // The look at the plans can fail.
    conn.execute(
        "DROP INDEX idx_undolog_approval_listed, idx_undolog_effect_log_uncertain, \
         idx_undolog_notifications_listed",
    )
    .await
    .expect("drop");
    for (sql, values, index, _) in &lists {
        for plan in plans(&mut conn, sql, values).await {
            let is_used = plan.contains(index) || plan.contains("_org_id_coalesce_effect_id_idx");
            assert!(!is_used, "{plan}");
        }
    }
}
