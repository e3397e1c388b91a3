//! A private server per test, and short ways to talk to it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use sqlx::{Connection, Executor, PgConnection};
use undolog_embedded::{Auth, Cluster, ClusterOptions};
use undolog_store::migrate::{MigrateReport, migrate};

/// Two tenants with fixed ids.
pub(crate) const ORG_A: &str = "00000000-0000-7000-8000-00000000000a";
pub(crate) const ORG_B: &str = "00000000-0000-7000-8000-00000000000b";

/// A server in a folder of its own; both go with this value.
pub(crate) struct Server {
    // Dropped first, so that the folder is no longer in use.
    cluster: Option<Cluster>,
    folder: PathBuf,
}

impl Server {
    pub(crate) fn start(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("undolog-store-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let cluster = ClusterOptions::new(folder.join("data"))
            .auth(Auth::Trust)
            .fsync(false)
            .start()
            .unwrap();
        Self { cluster: Some(cluster), folder }
    }

    /// The superuser's URL of a database.
    pub(crate) fn url(&self, database: &str) -> String {
        self.cluster.as_ref().unwrap().url(database)
    }

    /// The URL of another login; the server trusts everyone.
    pub(crate) fn url_of(&self, login: &str, database: &str) -> String {
        let port = self.cluster.as_ref().unwrap().port();
        format!("postgres://{login}@127.0.0.1:{port}/{database}")
    }

    /// A URL whose connections act as `role`.
    pub(crate) fn url_as(&self, role: &str, database: &str) -> String {
        as_role(&self.url(database), role)
    }

    pub(crate) async fn connect(&self, database: &str) -> PgConnection {
        PgConnection::connect(&self.url(database)).await.unwrap()
    }

    pub(crate) async fn create_database(&self, name: &str) {
        run(&mut self.connect("postgres").await, &format!("CREATE DATABASE {name}")).await;
    }

    /// Migrates the database `postgres` of this server.
    pub(crate) async fn migrated(name: &str) -> (Self, MigrateReport) {
        let server = Self::start(name);
        let report = migrate(&server.url("postgres")).await.unwrap();
        (server, report)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.cluster.take());
        let _best_effort = std::fs::remove_dir_all(&self.folder);
    }
}

/// The same URL, acting as `role` from the first statement on.
pub(crate) fn as_role(url: &str, role: &str) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}options=-c%20role%3D{role}")
}

pub(crate) async fn run(conn: &mut PgConnection, sql: &str) {
    if let Err(error) = conn.execute(sql).await {
        panic!("{error}\n{sql}");
    }
}

/// Waits until a query answers `wanted`.
pub(crate) async fn until(conn: &mut PgConnection, query: &str, wanted: bool) {
    let started = Instant::now();
    loop {
        let answer: bool = sqlx::query_scalar(query).fetch_one(&mut *conn).await.unwrap();
        if answer == wanted {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(30), "never {wanted}: {query}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The SQLSTATE that a statement must fail with.
pub(crate) async fn refusal(conn: &mut PgConnection, sql: &str) -> String {
    let error = conn.execute(sql).await.expect_err(sql);
    error.as_database_error().unwrap().code().unwrap().into_owned()
}

/// How many rows a relation shows.
pub(crate) async fn count(conn: &mut PgConnection, relation: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM {relation}");
    sqlx::query_scalar(&sql).fetch_one(conn).await.unwrap()
}

/// Two orgs with one session, effect, undo entry, approval, decision and snapshot each, written as
/// the owner.
pub(crate) async fn fill_two_orgs(conn: &mut PgConnection) {
    run(conn, "SET ROLE undolog_owner").await;
    for (org, digit) in [(ORG_A, "a"), (ORG_B, "b")] {
        let id = |n: u32| format!("00000000-0000-7000-8000-0000000000{n:x}{digit}");
        let (project, session, effect, approval) = (id(1), id(2), id(3), id(4));
        let signature = digit.repeat(64);
        run(
            conn,
            &format!(
                "INSERT INTO undolog_orgs (org_id, name, slug) VALUES ('{org}', 'o', 'org-{digit}');
                 INSERT INTO undolog_projects (project_id, org_id, name)
                     VALUES ('{project}', '{org}', 'p');
                 INSERT INTO undolog_tool_registry (org_id, tool_name, tier, compensation_ref,
                     tool_schema) VALUES ('{org}', 'pay', 'compensable', 'refund', '{{}}');
                 INSERT INTO undolog_compensation_registry (org_id, fn_name, description, fn_body,
                     args_schema) VALUES ('{org}', 'refund', 'refunds', '{{}}', '{{}}');
                 INSERT INTO undolog_sessions (session_id, org_id, project_id)
                     VALUES ('{session}', '{org}', '{project}');
                 INSERT INTO undolog_effect_log (effect_id, org_id, session_id, call_signature,
                     tool_name, tier, step_index, args_snapshot)
                     VALUES ('{effect}', '{org}', '{session}', '{signature}', 'pay',
                     'compensable', 0, '{{}}');
                 INSERT INTO undolog_undo_stack (org_id, session_id, effect_id, stack_position,
                     compensation_fn, compensation_args)
                     VALUES ('{org}', '{session}', '{effect}', 1, 'refund', '{{}}');
                 INSERT INTO undolog_approval_requests (approval_request_id, org_id, session_id,
                     effect_id, tool_name, irreversibility_reason, proposed_args, timeout_at)
                     VALUES ('{approval}', '{org}', '{session}', '{effect}', 'wipe', 'gone', '{{}}',
                     now());
                 INSERT INTO undolog_approval_events (approval_request_id, org_id, action, actor)
                     VALUES ('{approval}', '{org}', 'approve', 'ann');
                 INSERT INTO undolog_session_snapshots (session_id, org_id, up_to_step, state_bytes)
                     VALUES ('{session}', '{org}', 1, '');"
            ),
        )
        .await;
    }
    run(conn, "RESET ROLE").await;
}
