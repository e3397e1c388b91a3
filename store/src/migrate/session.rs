//! The connection that a migration runs on: its settings, its lock, who it acts as, and the retries
//! of a migrator that found a table busy.

use std::time::{Duration, Instant};

use sqlx::migrate::Migrator;
use sqlx::{Executor, PgConnection};

use super::{MIN_SERVER_VERSION_NUM, MigrateError, Source};
use crate::settings;

/// Advisory lock of a running migration ("undolog" in ASCII, and 1).
const LOCK_KEY: i64 = 0x0175_6e64_6f6c_6f67;
const LOCK_WAIT_MAX: Duration = Duration::from_secs(600);
const LOCK_POLL: Duration = Duration::from_millis(100);

/// A migration never queues behind a long query for longer than `lock_timeout`, because everybody
/// else would queue behind the migration; it lets go and tries again this often instead.
const BUSY_TRIES_MAX: u32 = 30;
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// Of every statement that says nothing else.
pub(super) const TIMEOUTS: &str = "SET lock_timeout = '5s'; SET statement_timeout = '15min'";
/// The same in milliseconds, for when the connection is made.
pub(super) const TIMEOUTS_MS: [(&str, u64); 3] = [
    ("lock_timeout", 5_000),
    ("statement_timeout", 900_000),
    ("idle_in_transaction_session_timeout", 300_000),
];

/// Checks the server and acts as the login. What the connection is set to was said when connecting.
pub(super) async fn prepare(conn: &mut PgConnection) -> Result<i32, MigrateError> {
    let server_version_num: i32 =
        sqlx::query_scalar("SELECT current_setting('server_version_num')::int")
            .fetch_one(&mut *conn)
            .await?;
    if server_version_num < MIN_SERVER_VERSION_NUM {
        return Err(MigrateError::ServerTooOld { server_version_num });
    }
    let server_encoding: String =
        sqlx::query_scalar("SHOW server_encoding").fetch_one(&mut *conn).await?;
    if server_encoding != "UTF8" && crate::guard!("settings.server") {
        return Err(MigrateError::NotUtf8 { server_encoding });
    }
    settings::make_durable(conn).await?;
    become_login(conn).await?;
    conn.execute("SET client_min_messages = warning").await?;
    Ok(server_version_num)
}

/// Acts as the login itself. `RESET ROLE` would go back to a role of the connection's options.
pub(super) async fn become_login(conn: &mut PgConnection) -> Result<(), MigrateError> {
    conn.execute("SET ROLE NONE").await?;
    Ok(())
}

/// Acts as the role that owns every object of ours.
pub(super) async fn become_owner(conn: &mut PgConnection) -> Result<(), MigrateError> {
    conn.execute("SET ROLE undolog_owner").await?;
    Ok(())
}

/// Takes the migration lock of this database. It asks again and again instead of waiting inside the
/// server: a waiting statement holds a snapshot, which a concurrent index build would wait for.
pub(super) async fn lock(conn: &mut PgConnection) -> Result<(), MigrateError> {
    let started = Instant::now();
    loop {
        let locked: bool = sqlx::query_scalar("SELECT pg_try_advisory_lock($1)")
            .bind(LOCK_KEY)
            .fetch_one(&mut *conn)
            .await?;
        if locked {
            return Ok(());
        }
        if started.elapsed() > LOCK_WAIT_MAX {
            return Err(MigrateError::Busy { waited_seconds: started.elapsed().as_secs() });
        }
        tokio::time::sleep(LOCK_POLL).await;
    }
}

/// Lets go of every advisory lock of this connection: ours, and what a failed migrator left.
pub(super) async fn unlock(conn: &mut PgConnection) -> Result<(), MigrateError> {
    conn.execute("SELECT pg_advisory_unlock_all()").await?;
    Ok(())
}

/// Runs a migrator, again when it met a lock that somebody else held; each file is one transaction.
pub(super) async fn run(
    conn: &mut PgConnection,
    migrator: &Migrator,
    source: Source,
) -> Result<(), MigrateError> {
    let mut tries = 1;
    loop {
        // Not `run`: its future cannot be sent to another task, which callers of ours need.
        match migrator.run_direct(&mut *conn).await {
            Ok(()) => return Ok(()),
            Err(error) if tries < BUSY_TRIES_MAX && is_busy(&error) => {
                tracing::info!(source = source.name(), tries, "a table is busy, trying again");
                tries += 1;
                tokio::time::sleep(BUSY_PAUSE).await;
            }
            Err(error) => {
                return Err(MigrateError::Migration { source_name: source.name(), error });
            }
        }
    }
}

fn is_busy(error: &sqlx::migrate::MigrateError) -> bool {
    use sqlx::migrate::MigrateError as Migrating;
    let (Migrating::Execute(inner) | Migrating::ExecuteMigration(inner, _)) = error else {
        return false;
    };
    code_is(inner, &["55P03", "40P01"])
}

/// Whether the server answered with one of these SQLSTATEs.
pub(super) fn code_is(error: &sqlx::Error, codes: &[&str]) -> bool {
    error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code)
        .is_some_and(|code| codes.contains(&code.as_ref()))
}
