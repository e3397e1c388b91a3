use std::{path::PathBuf, time::Instant};

use sqlx::Connection as _;
use undolog_embedded::{Auth, Cluster, ClusterOptions};

use super::*;
use crate::migrate::{constraints, migrate};

/// A migrated server of the test's own.
struct Server {
    cluster: Option<Cluster>,
    folder: PathBuf,
}

impl Server {
    async fn start(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("undolog-indexes-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let options = ClusterOptions::new(folder.join("data")).auth(Auth::Trust).fsync(false);
        let server = Self { cluster: Some(options.start().unwrap()), folder };
        migrate(&server.url()).await.unwrap();
        server
    }

    fn url(&self) -> String {
        self.cluster.as_ref().unwrap().url("postgres")
    }

    async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url()).await.unwrap()
    }

    /// A connection as a migration has it.
    async fn migrator(&self) -> PgConnection {
        let mut conn = self.connect().await;
        session::prepare(&mut conn).await.unwrap();
        conn
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.cluster.take());
        let _best_effort = std::fs::remove_dir_all(&self.folder);
    }
}

const BY_TOOL: Index = Index {
    name: "idx_undolog_effect_log_by_tool",
    table: "undolog_effect_log",
    definition: "(org_id, tool_name) WHERE state = 'committed'",
};
const BY_AGENT: Index = Index {
    name: "idx_undolog_sessions_by_agent",
    table: "undolog_sessions",
    definition: "(org_id, agent_name)",
};

const ORG: &str = "INSERT INTO undolog_orgs (org_id, name, slug)
    VALUES ('00000000-0000-7000-8000-00000000000a', 'o', 'org')";
const SESSION: &str = "INSERT INTO undolog_sessions (org_id)
    VALUES ('00000000-0000-7000-8000-00000000000a')";
const EFFECT: &str =
    "INSERT INTO undolog_effect_log (org_id, session_id, call_signature, tool_name,
        tier, step_index, args_snapshot)
    VALUES ('00000000-0000-7000-8000-00000000000a', gen_random_uuid(),
        encode(sha256(random()::text::bytea), 'hex'), 'pay', 'compensable', 0, '{}')";

async fn count(conn: &mut PgConnection, sql: &str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(conn).await.unwrap()
}

/// A concurrent build waits for a transaction that is older.
async fn until_it_waits(conn: &mut PgConnection) {
    let started = Instant::now();
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
        AND query LIKE 'CREATE INDEX%'";
    while count(conn, waiting).await == 0 {
        assert!(started.elapsed() < Duration::from_secs(60), "nothing is built");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Builds an index while a transaction that wrote to its table is open, and writes meanwhile.
async fn build_beside_a_writer(server: &Server, index: Index, write: &'static str) {
    let mut admin = server.connect().await;
    admin.execute(write).await.unwrap();
    let mut writer = server.connect().await;
    writer.execute("BEGIN").await.unwrap();
    writer.execute(write).await.unwrap();
    let mut conn = server.migrator().await;
    let building = tokio::spawn(async move { build_one(&mut conn, &index).await.unwrap() });
    until_it_waits(&mut admin).await;
    // Nobody waits behind the build.
    admin.execute("SET lock_timeout = '2s'").await.unwrap();
    admin.execute(write).await.unwrap();
    writer.execute("COMMIT").await.unwrap();
    assert!(building.await.unwrap());
    let mut conn = server.migrator().await;
    assert!(!build_one(&mut conn, &index).await.unwrap(), "it is there now");
}

#[tokio::test]
async fn an_index_is_built_while_its_table_is_written() {
    let server = Server::start("plain").await;
    server.connect().await.execute(ORG).await.unwrap();
    build_beside_a_writer(&server, BY_AGENT, SESSION).await;
}

#[tokio::test]
async fn a_partitioned_table_gets_its_index_month_by_month() {
    let server = Server::start("months").await;
    let mut conn = server.connect().await;
    // The parent's own part takes no time; what follows has to let writers through.
    let only =
        format!("CREATE INDEX {} ON ONLY undolog_effect_log {}", BY_TOOL.name, BY_TOOL.definition);
    conn.execute(format!("SET ROLE undolog_owner; {only}; RESET ROLE").as_str()).await.unwrap();
    build_beside_a_writer(&server, BY_TOOL, EFFECT).await;
    let of_months =
        "SELECT count(*) FROM pg_inherits p JOIN pg_index i ON i.indexrelid = p.inhrelid
        WHERE inhparent = 'idx_undolog_effect_log_by_tool'::regclass AND indisvalid";
    let months = count(&mut conn, of_months).await;
    assert!(months >= 21, "{months}");
    // A month that is made later has it from the start.
    conn.execute(
        "CREATE TABLE undolog_effect_log_2099_01 PARTITION OF undolog_effect_log
         FOR VALUES FROM ('2099-01-01') TO ('2099-02-01')",
    )
    .await
    .unwrap();
    assert_eq!(count(&mut conn, of_months).await, months + 1);
}

#[tokio::test]
async fn a_build_that_was_broken_off_is_done_again() {
    let server = Server::start("broken").await;
    let mut conn = server.connect().await;
    conn.execute(ORG).await.unwrap();
    conn.execute(SESSION).await.unwrap();
    conn.execute(SESSION).await.unwrap();
    // A failed unique build leaves what any broken build leaves.
    let failing = "CREATE UNIQUE INDEX CONCURRENTLY idx_undolog_sessions_by_agent
        ON undolog_sessions (org_id)";
    conn.execute("SET ROLE undolog_owner").await.unwrap();
    conn.execute(failing).await.unwrap_err();
    let mut migrator = server.migrator().await;
    let found = state(&mut migrator, BY_AGENT.name, BY_AGENT.table).await.unwrap();
    assert_eq!(found, State::Invalid);
    assert!(build_one(&mut migrator, &BY_AGENT).await.unwrap());
    let is_whole = "SELECT count(*) FROM pg_indexes
        WHERE indexname = 'idx_undolog_sessions_by_agent'
          AND indexdef LIKE '%(org_id, agent_name)'";
    assert_eq!(count(&mut conn, is_whole).await, 1);
}

#[tokio::test]
async fn older_rows_are_checked_afterwards_and_told_of_when_they_do_not_fit() {
    let server = Server::start("constraints").await;
    let mut conn = server.connect().await;
    conn.execute(ORG).await.unwrap();
    conn.execute(SESSION).await.unwrap();
    conn.execute(
        "ALTER TABLE undolog_sessions
           ADD CONSTRAINT fits CHECK (tool_calls_total >= 0) NOT VALID,
           ADD CONSTRAINT fits_not CHECK (tool_calls_total > 0) NOT VALID",
    )
    .await
    .unwrap();
    let mut report = MigrateReport::default();
    let mut migrator = server.migrator().await;
    constraints::validate(&mut migrator, &mut report).await.unwrap();
    assert_eq!(report.constraints_unchecked, ["undolog_sessions.fits_not"]);
    let valid = "SELECT count(*) FROM pg_constraint WHERE conname = 'fits' AND convalidated";
    assert_eq!(count(&mut conn, valid).await, 1);
    // And a whole run of migrations goes on past it.
    let report = migrate(&server.url()).await.unwrap();
    assert_eq!(report.constraints_unchecked, ["undolog_sessions.fits_not"]);
}

#[tokio::test]
async fn what_is_retired_is_dropped() {
    let server = Server::start("retired").await;
    let mut conn = server.migrator().await;
    for index in [&BY_AGENT, &BY_TOOL] {
        build_one(&mut conn, index).await.unwrap();
        assert!(retire(&mut conn, index.name).await.unwrap());
        assert!(!retire(&mut conn, index.name).await.unwrap());
    }
}
