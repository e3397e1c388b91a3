//! `public._sqlx_migrations`, which our migrations and the queue library's share.

use std::collections::HashMap;

use apalis_sql::postgres::PostgresStorage;
use sqlx::migrate::Migrator;
use sqlx::{Executor, PgConnection};

use super::{MigrateError, MigrateReport, roles};

/// Whose migration it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Our own tables.
    UndoLog,
    /// The queue library's tables, in their schema `apalis`.
    Apalis,
}

impl Source {
    /// The name shown to people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::UndoLog => "undolog",
            Self::Apalis => "apalis",
        }
    }
}

/// One migration that this build knows, and what the database says about it.
#[derive(Debug, Clone)]
pub struct MigrationState {
    /// Whose it is.
    pub source: Source,
    /// The number at the start of its file name.
    pub version: i64,
    /// The rest of its file name.
    pub description: String,
    /// Whether the database has had it.
    pub applied: bool,
    /// Whether the database has had it with other contents than this build's.
    pub checksum_differs: bool,
    /// How long it took, once known.
    pub execution_ms: Option<u64>,
}

impl MigrationState {
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.source == other.source && self.version == other.version
    }
}

/// The queue library's own migrations.
pub(super) fn apalis_migrator() -> Migrator {
    let mut migrator = PostgresStorage::<()>::migrations();
    migrator.set_ignore_missing(true);
    migrator
}

/// Every known migration with its state; also right for a database that has none yet.
pub(crate) async fn read(conn: &mut PgConnection) -> Result<Vec<MigrationState>, sqlx::Error> {
    let mut had: HashMap<i64, (Vec<u8>, i64)> = HashMap::new();
    if exists(conn).await? {
        let rows: Vec<(i64, Vec<u8>, i64)> = sqlx::query_as(
            "SELECT version, checksum, execution_time FROM public._sqlx_migrations WHERE success",
        )
        .fetch_all(conn)
        .await?;
        had.extend(rows.into_iter().map(|(version, sum, nanos)| (version, (sum, nanos))));
    }
    let mut states = Vec::new();
    for (source, migrator) in
        [(Source::Apalis, apalis_migrator()), (Source::UndoLog, super::embedded())]
    {
        for migration in migrator.iter().filter(|m| !m.migration_type.is_down_migration()) {
            let found = had.get(&migration.version);
            states.push(MigrationState {
                source,
                version: migration.version,
                description: migration.description.to_string(),
                applied: found.is_some(),
                checksum_differs: found.is_some_and(|(sum, _)| *sum != *migration.checksum),
                // The migrator notes -1 until it knows.
                execution_ms: found
                    .and_then(|(_, ns)| u64::try_from(*ns).ok())
                    .map(|ns| ns / 1_000_000),
            });
        }
    }
    Ok(states)
}

/// When somebody else made the ledger (the queue library's setup), lets `undolog_owner` write it.
pub(super) async fn share(
    conn: &mut PgConnection,
    report: &mut MigrateReport,
) -> Result<(), MigrateError> {
    if !exists(conn).await? {
        return Ok(());
    }
    let writable: bool = sqlx::query_scalar(
        "SELECT has_table_privilege('undolog_owner', 'public._sqlx_migrations', 'SELECT')
            AND has_table_privilege('undolog_owner', 'public._sqlx_migrations', 'INSERT')
            AND has_table_privilege('undolog_owner', 'public._sqlx_migrations', 'UPDATE')",
    )
    .fetch_one(&mut *conn)
    .await?;
    if writable {
        return Ok(());
    }
    let statement = "GRANT SELECT, INSERT, UPDATE ON public._sqlx_migrations \
                     TO undolog_owner WITH GRANT OPTION";
    roles::grant(conn, statement, "share the table of applied migrations", report).await
}

/// Lets the runtime roles compare the database with their build when they start.
pub(super) async fn grant_reading(conn: &mut PgConnection) -> Result<(), MigrateError> {
    let readable: bool = sqlx::query_scalar(
        "SELECT has_table_privilege('undolog_app', 'public._sqlx_migrations', 'SELECT')
            AND has_table_privilege('undolog_worker', 'public._sqlx_migrations', 'SELECT')",
    )
    .fetch_one(&mut *conn)
    .await?;
    if !readable {
        let statement = "GRANT SELECT ON public._sqlx_migrations TO undolog_app, undolog_worker";
        conn.execute(statement).await?;
    }
    Ok(())
}

async fn exists(conn: &mut PgConnection) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("SELECT to_regclass('public._sqlx_migrations') IS NOT NULL")
        .fetch_one(conn)
        .await
}
