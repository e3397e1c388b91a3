//! The self-check of runtime processes: each guard taken out in a transaction that is rolled back.

use undolog_store::catalog::{CatalogError, check_runtime};

use crate::kit::{Server, run};

/// What is broken, with the kind of finding that must name it. Each runs as a superuser, alone.
const BREAKS: &[(&str, &str)] = &[
    ("superuser", "ALTER ROLE undolog_app SUPERUSER"),
    ("bypassrls", "ALTER ROLE undolog_app BYPASSRLS"),
    ("owner", "ALTER TABLE undolog_projects OWNER TO undolog_app"),
    ("member", "GRANT undolog_owner TO undolog_app"),
    ("member", "GRANT undolog_auth TO undolog_app"),
    ("member", "CREATE ROLE seer BYPASSRLS; GRANT seer TO undolog_app"),
    ("may_delete", "GRANT DELETE ON undolog_orgs TO undolog_app"),
    ("may_delete", "GRANT TRUNCATE ON undolog_sessions TO undolog_app"),
    ("may_rewrite", "GRANT UPDATE (note) ON undolog_approval_events TO undolog_app"),
    ("may_rewrite", "GRANT DELETE ON undolog_approval_events TO undolog_app"),
    ("rls_not_enabled", "ALTER TABLE undolog_undo_stack DISABLE ROW LEVEL SECURITY"),
    ("rls_not_forced", "ALTER TABLE undolog_sessions NO FORCE ROW LEVEL SECURITY"),
    ("no_isolation", "DROP POLICY undolog_sessions_isolation ON undolog_sessions"),
    (
        "no_isolation",
        "ALTER POLICY undolog_orgs_isolation ON undolog_orgs
         USING (org_id = current_setting('undolog.current_org_id')::uuid)",
    ),
    (
        "open_policy",
        "CREATE POLICY wide ON undolog_effect_log FOR SELECT TO undolog_app USING (true)",
    ),
    ("open_policy", "CREATE POLICY wide ON undolog_projects FOR INSERT WITH CHECK (true)"),
    ("public_grant", "GRANT SELECT ON undolog_sessions TO PUBLIC"),
    ("public_grant", "GRANT SELECT (name) ON undolog_orgs TO PUBLIC"),
    ("public_grant", "GRANT SELECT ON undolog_active_sessions TO PUBLIC"),
    (
        "public_grant",
        "CREATE FUNCTION undolog_leak() RETURNS int LANGUAGE sql SECURITY DEFINER RETURN 1",
    ),
    ("definer_view", "ALTER VIEW undolog_active_sessions RESET (security_invoker)"),
    ("missing_table", "ALTER TABLE undolog_session_snapshots RENAME TO snapshots_of_old"),
    ("migrations", "DELETE FROM _sqlx_migrations WHERE version = 2"),
    ("migrations", "UPDATE _sqlx_migrations SET checksum = '' WHERE version = 1"),
    ("migrations", "REVOKE SELECT ON _sqlx_migrations FROM undolog_app"),
];

/// The same, on the partition of the current month (`%`).
const PARTITION_BREAKS: &[(&str, &str)] = &[
    ("rls_not_enabled", "ALTER TABLE % DISABLE ROW LEVEL SECURITY"),
    ("rls_not_forced", "ALTER TABLE % NO FORCE ROW LEVEL SECURITY"),
    ("no_isolation", "DROP POLICY undolog_effect_log_isolation ON %"),
    ("partition_granted", "GRANT SELECT ON % TO undolog_app"),
    ("partition_granted", "GRANT DELETE ON % TO undolog_app"),
    ("public_grant", "GRANT SELECT ON % TO PUBLIC"),
    ("partitions", "ALTER TABLE undolog_effect_log DETACH PARTITION %"),
];

#[tokio::test]
async fn the_self_check_refuses_each_broken_guard() {
    let (server, _) = Server::migrated("self-check").await;
    let mut conn = server.connect("postgres").await;
    let partition: String = sqlx::query_scalar(
        "SELECT 'undolog_effect_log_' || to_char(now() AT TIME ZONE 'UTC', 'YYYY_MM')",
    )
    .fetch_one(&mut conn)
    .await
    .unwrap();
    let mut breaks: Vec<(&str, String)> =
        BREAKS.iter().map(|(kind, sql)| (*kind, (*sql).to_owned())).collect();
    breaks.extend(PARTITION_BREAKS.iter().map(|(kind, sql)| (*kind, sql.replace('%', &partition))));
    breaks.push(("partitions", detach_next()));
    breaks.push(("replication_role", "SET LOCAL session_replication_role = replica".to_owned()));
    breaks.push(("durability", "SET LOCAL undolog.data_may_be_lost = off".to_owned()));

    for (kind, sql) in &breaks {
        run(&mut conn, "BEGIN").await;
        run(&mut conn, sql).await;
        run(&mut conn, "SET LOCAL ROLE undolog_app").await;
        let outcome = check_runtime(&mut conn).await;
        run(&mut conn, "ROLLBACK").await;
        let Err(CatalogError::Unfit(findings)) = outcome else {
            panic!("not refused ({outcome:?}): {sql}");
        };
        assert!(findings.iter().any(|f| f.kind == *kind), "{kind} not in {findings:?}: {sql}");
    }

    // Whole again, it passes; and a superuser never does.
    run(&mut conn, "SET ROLE undolog_app").await;
    check_runtime(&mut conn).await.unwrap();
    run(&mut conn, "RESET ROLE").await;
    let error = check_runtime(&mut conn).await.unwrap_err();
    assert!(error.findings().iter().any(|f| f.kind == "superuser"), "{error}");
}

#[tokio::test]
async fn a_database_without_our_schema_is_refused_with_what_to_do() {
    let server = Server::start("empty");
    let mut conn = server.connect("postgres").await;
    let error = check_runtime(&mut conn).await.unwrap_err();
    let kinds: Vec<&str> = error.findings().iter().map(|f| f.kind.as_str()).collect();
    assert!(kinds.contains(&"missing_table") && kinds.contains(&"migrations"), "{kinds:?}");
    assert!(error.to_string().contains("run `undolog migrate`"), "{error}");
}

/// Only the next month is missing.
fn detach_next() -> String {
    "DO $$ BEGIN
         EXECUTE 'ALTER TABLE undolog_signatures DETACH PARTITION undolog_signatures_' || to_char(
             date_trunc('month', now() AT TIME ZONE 'UTC') + interval '1 month', 'YYYY_MM');
     END $$"
        .to_owned()
}

#[tokio::test]
async fn few_months_ahead_are_no_reason_not_to_serve() {
    let (server, _) = Server::migrated("few-months").await;
    let mut conn = server.connect("postgres").await;
    run(
        &mut conn,
        "DO $$ DECLARE month text; BEGIN
             FOR month IN SELECT to_char(date_trunc('month', now() AT TIME ZONE 'UTC')
                 + make_interval(months => n), 'YYYY_MM') FROM generate_series(2, 14) AS n
             LOOP
                 EXECUTE 'DROP TABLE undolog_effect_log_' || month;
             END LOOP;
         END $$; SET ROLE undolog_app",
    )
    .await;
    check_runtime(&mut conn).await.unwrap();
}
