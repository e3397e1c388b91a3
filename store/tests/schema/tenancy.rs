//! Row-level security as the runtime roles meet it.

use sqlx::{Connection, PgConnection};

use crate::kit::{ORG_A, ORG_B, Server, count, fill_two_orgs, refusal, run};

/// The documented tenant tables and the view, with the rows of one org in [`fill_two_orgs`].
const RELATIONS: [&str; 11] = [
    "undolog_orgs",
    "undolog_projects",
    "undolog_tool_registry",
    "undolog_compensation_registry",
    "undolog_sessions",
    "undolog_effect_log",
    "undolog_undo_stack",
    "undolog_approval_requests",
    "undolog_approval_events",
    "undolog_session_snapshots",
    "undolog_active_sessions",
];

const PERMISSION_DENIED: &str = "42501";

async fn filled(name: &str) -> (Server, PgConnection) {
    let (server, _) = Server::migrated(name).await;
    let mut conn = server.connect("postgres").await;
    fill_two_orgs(&mut conn).await;
    (server, conn)
}

#[tokio::test]
async fn without_an_org_no_row_is_seen_and_none_gets_in() {
    let (server, _admin) = filled("no-org").await;
    for role in ["undolog_app", "undolog_worker"] {
        let mut conn = PgConnection::connect(&server.url_as(role, "postgres")).await.unwrap();
        // Never set; then ended with its transaction, which leaves an empty string; then empty.
        let never: Option<String> = setting(&mut conn).await;
        assert_eq!(never, None);
        sees_nothing(&mut conn, role).await;
        run(&mut conn, &format!("BEGIN; SET LOCAL undolog.current_org_id = '{ORG_A}'; COMMIT"))
            .await;
        assert_eq!(setting(&mut conn).await.as_deref(), Some(""));
        sees_nothing(&mut conn, role).await;
    }
}

async fn setting(conn: &mut PgConnection) -> Option<String> {
    sqlx::query_scalar("SELECT current_setting('undolog.current_org_id', true)")
        .fetch_one(conn)
        .await
        .unwrap()
}

async fn sees_nothing(conn: &mut PgConnection, role: &str) {
    for relation in RELATIONS {
        assert_eq!(count(conn, relation).await, 0, "{role} sees rows of {relation}");
    }
    let insert = format!(
        "INSERT INTO undolog_approval_events (approval_request_id, org_id, action, actor)
         VALUES ('00000000-0000-7000-8000-00000000004a', '{ORG_A}', 'approve', 'eve')"
    );
    assert_eq!(refusal(conn, &insert).await, PERMISSION_DENIED, "{role}");
    let update = "UPDATE undolog_sessions SET agent_name = 'eve'";
    let changed = sqlx::query(update).execute(conn).await.unwrap();
    assert_eq!(changed.rows_affected(), 0, "{role}");
}

#[tokio::test]
async fn an_org_reaches_its_own_rows_only() {
    let (_server, mut conn) = filled("two-orgs").await;
    for role in ["undolog_app", "undolog_worker"] {
        run(&mut conn, &format!("SET ROLE {role}; SET undolog.current_org_id = '{ORG_B}'")).await;
        for relation in RELATIONS {
            assert_eq!(count(&mut conn, relation).await, 1, "{role} in {relation}");
            let foreign = format!("{relation} WHERE org_id = '{ORG_A}'");
            assert_eq!(count(&mut conn, &foreign).await, 0, "{role} in {relation}");
        }
        let update =
            format!("UPDATE undolog_sessions SET agent_name = 'eve' WHERE org_id = '{ORG_A}'");
        let changed = sqlx::query(&update).execute(&mut conn).await.unwrap();
        assert_eq!(changed.rows_affected(), 0, "{role}");
        // Nor can a row be pushed over to the other org.
        let push = format!("UPDATE undolog_undo_stack SET org_id = '{ORG_A}'");
        assert_eq!(refusal(&mut conn, &push).await, PERMISSION_DENIED, "{role}");
    }
    run(&mut conn, "SET ROLE undolog_app").await;
    let insert = format!("INSERT INTO undolog_sessions (org_id) VALUES ('{ORG_A}')");
    assert_eq!(refusal(&mut conn, &insert).await, PERMISSION_DENIED);
}

#[tokio::test]
async fn a_directly_named_partition_shows_nothing() {
    let (_server, mut conn) = filled("partition").await;
    let partition: String = sqlx::query_scalar(
        "SELECT 'undolog_effect_log_' || to_char(now() AT TIME ZONE 'UTC', 'YYYY_MM')",
    )
    .fetch_one(&mut conn)
    .await
    .unwrap();
    run(&mut conn, "SET ROLE undolog_owner").await;
    assert_eq!(count(&mut conn, &partition).await, 2, "the rows are there");
    for role in ["undolog_app", "undolog_worker"] {
        run(&mut conn, &format!("SET ROLE {role}; SET undolog.current_org_id = '{ORG_A}'")).await;
        let select = format!("SELECT * FROM {partition}");
        assert_eq!(refusal(&mut conn, &select).await, PERMISSION_DENIED);
        let delete = format!("DELETE FROM {partition}");
        assert_eq!(refusal(&mut conn, &delete).await, PERMISSION_DENIED);
    }
    // Should somebody grant the partition after all, its own policies still bind.
    run(&mut conn, &format!("RESET ROLE; GRANT SELECT ON {partition} TO undolog_app")).await;
    run(&mut conn, "SET ROLE undolog_app; SET undolog.current_org_id = ''").await;
    assert_eq!(count(&mut conn, &partition).await, 0);
    run(&mut conn, &format!("SET undolog.current_org_id = '{ORG_A}'")).await;
    assert_eq!(count(&mut conn, &partition).await, 1);
}

#[tokio::test]
async fn the_owner_sees_every_org_and_may_clean_up() {
    let (_server, mut conn) = filled("owner").await;
    run(&mut conn, "SET ROLE undolog_owner").await;
    for relation in RELATIONS {
        assert_eq!(count(&mut conn, relation).await, 2, "{relation}");
    }
    // The documented cascades: what hangs on an org goes with it; the effects' rows stay.
    run(&mut conn, &format!("DELETE FROM undolog_orgs WHERE org_id = '{ORG_A}'")).await;
    for relation in RELATIONS {
        let left = if relation == "undolog_effect_log" { 2 } else { 1 };
        assert_eq!(count(&mut conn, relation).await, left, "{relation}");
    }
}

#[tokio::test]
async fn runtime_roles_cannot_delete_or_rewrite_history() {
    let (_server, mut conn) = filled("rights").await;
    for role in ["undolog_app", "undolog_worker"] {
        run(&mut conn, &format!("SET ROLE {role}; SET undolog.current_org_id = '{ORG_A}'")).await;
        for relation in &RELATIONS[..10] {
            let delete = format!("DELETE FROM {relation}");
            assert_eq!(refusal(&mut conn, &delete).await, PERMISSION_DENIED, "{role} {relation}");
            let truncate = format!("TRUNCATE {relation}");
            assert_eq!(refusal(&mut conn, &truncate).await, PERMISSION_DENIED, "{role} {relation}");
        }
        let rewrite = "UPDATE undolog_approval_events SET actor = 'eve'";
        assert_eq!(refusal(&mut conn, rewrite).await, PERMISSION_DENIED, "{role}");
    }
}

/// Tables of settings: a row of theirs is written by a person, not by a call.
const SETTINGS: [&str; 7] = [
    "undolog_api_keys",
    "undolog_brakes",
    "undolog_breakers",
    // One row a second and function, however many calls there are.
    "undolog_call_counts",
    "undolog_pauses",
    "undolog_proxies",
    "undolog_route_breakers",
];

#[tokio::test]
async fn rows_of_calls_lock_their_organisation_by_documented_keys_only() {
    let (server, _) = Server::migrated("org-keys").await;
    let mut conn = server.connect("postgres").await;
    let named: Vec<String> = sqlx::query_scalar(
        "SELECT DISTINCT conrelid::regclass::text FROM pg_constraint
         WHERE contype = 'f' AND confrelid = 'undolog_orgs'::regclass",
    )
    .fetch_all(&mut conn)
    .await
    .unwrap();
    let ours: Vec<&String> = named
        .iter()
        .filter(|table| !RELATIONS.contains(&table.as_str()) && !SETTINGS.contains(&table.as_str()))
        .collect();
    assert_eq!(ours, [""; 0], "they name a session, an entry or a request of the organisation");
}

#[tokio::test]
async fn an_organisation_that_is_deleted_takes_the_rows_of_its_calls_along() {
    let (_server, mut conn) = filled("org-deleted").await;
    // A row in every table that names a session, an entry or a request.
    let of_org = format!("WHERE org_id = '{ORG_A}'");
    for insert in [
        "undolog_rollbacks (org_id, session_id, kind, cause, requested_by, created_at, due_at)
           SELECT org_id, session_id, 'whole', 'c', 'r', now(), now() FROM undolog_sessions",
        "undolog_dead_letters (org_id, session_id, effect_id, reason, created_at)
           SELECT org_id, session_id, effect_id, 'R', now() FROM undolog_undo_stack",
        "undolog_effect_attempts (org_id, session_id, effect_id, attempt, ended_at, state)
           SELECT org_id, session_id, effect_id, 1, now(), 'failed' FROM undolog_undo_stack",
        "undolog_undo_attempts (org_id, session_id, undo_id, rollback_id, round, number, fence,
             worker, fn_hash, method, url, result_known, started_at)
           SELECT org_id, session_id, undo_id, undo_id, 1, 1, 1, 'w', '', 'POST', 'u', true, now()
           FROM undolog_undo_stack",
        "undolog_notifications (org_id, session_id, kind, body, created_at, due_at)
           SELECT org_id, session_id, 'session_halted', '{}', now(), now() FROM undolog_sessions",
        "undolog_approval_votes (org_id, approval_request_id, principal, args_digest, round,
             voted_at)
           SELECT org_id, approval_request_id, 'p', '', 1, now() FROM undolog_approval_requests",
    ] {
        run(&mut conn, &format!("INSERT INTO {insert} {of_org}")).await;
    }
    run(&mut conn, &format!("DELETE FROM undolog_orgs {of_org}")).await;
    // What is partitioned names no row of another table, and goes by months.
    let left: Vec<String> = sqlx::query_scalar(
        "SELECT c.relname::text FROM pg_class c
         JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'org_id'
         WHERE c.relkind = 'r' AND NOT c.relispartition
           AND c.relnamespace = 'public'::regnamespace",
    )
    .fetch_all(&mut conn)
    .await
    .unwrap();
    for table in left {
        let rows = count(&mut conn, &format!("{table} {of_org}")).await;
        assert_eq!(rows, 0, "{table}");
    }
}
