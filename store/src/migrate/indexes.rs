//! Builds indexes on tables that are in use, after the migrations: nobody waits for a build.
//!
//! A table's index is built by `CREATE INDEX CONCURRENTLY`. A partitioned table cannot have that:
//! it gets an index without its partitions (made in no time), then each partition's is built
//! concurrently and attached; with the last one the parent's becomes valid. A build that was broken
//! off leaves an invalid index, which the next run drops and builds anew. The caller holds the
//! migration lock, so one run builds at a time.

use std::time::Duration;

use sqlx::{Executor as _, PgConnection};

use super::wanted::{self, Index};
use super::{MigrateError, MigrateReport, session};

/// Statements that writers have to wait behind give up their place after this long.
const LOCK_TIMEOUT_BRIEF: &str = "1s";
/// A concurrent build waits for older transactions and nobody waits behind it.
const LOCK_TIMEOUT_CONCURRENT: &str = "10min";
const TRIES_MAX: u32 = 60;
const PAUSE: Duration = Duration::from_secs(1);

/// What the catalogue says about an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Missing,
    /// A build that did not end, or a partitioned table's index that lacks partitions.
    Invalid,
    Valid,
}

/// One index to build: of a table, or of one partition.
struct Target<'a> {
    name: &'a str,
    table: &'a str,
    definition: &'a str,
}

/// Builds what is missing and drops what is retired.
pub(super) async fn build(
    conn: &mut PgConnection,
    report: &mut MigrateReport,
) -> Result<(), MigrateError> {
    for index in wanted::indexes() {
        if build_one(conn, index).await? {
            report.indexes_built.push(index.name.to_owned());
        }
    }
    for name in wanted::RETIRED {
        if retire(conn, name).await? {
            report.indexes_dropped.push((*name).to_owned());
        }
    }
    Ok(())
}

/// The indexes that this build wants and the database does not have whole.
pub(super) async fn missing(conn: &mut PgConnection) -> Result<Vec<String>, sqlx::Error> {
    let mut missing = Vec::new();
    for index in wanted::indexes() {
        if state(conn, index.name, index.table).await? != State::Valid {
            missing.push(index.name.to_owned());
        }
    }
    Ok(missing)
}

/// Whether there was anything to build.
async fn build_one(conn: &mut PgConnection, index: &Index) -> Result<bool, MigrateError> {
    if state(conn, index.name, index.table).await? == State::Valid {
        return Ok(false);
    }
    act_as_owner_of(conn, index).await?;
    tracing::info!(index = index.name, table = index.table, "building an index");
    let target = Target { name: index.name, table: index.table, definition: index.definition };
    if is_partitioned(conn, index.table).await? {
        build_partitions(conn, &target).await?;
    } else {
        concurrently(conn, &target).await?;
    }
    match state(conn, index.name, index.table).await? {
        State::Valid => Ok(true),
        state => {
            Err(MigrateError::Index { name: index.name.to_owned(), state: format!("{state:?}") })
        }
    }
}

async fn build_partitions(
    conn: &mut PgConnection,
    target: &Target<'_>,
) -> Result<(), MigrateError> {
    let Target { name, table, definition } = target;
    if state(conn, name, table).await? == State::Missing {
        let create = format!("CREATE INDEX {name} ON ONLY {table} {definition}");
        brief(conn, &create).await?;
    }
    for partition in unattached(conn, name, table).await? {
        let month = partition.trim_start_matches(table);
        let child = format!("{name}{month}");
        let part = Target { name: &child, table: &partition, definition };
        concurrently(conn, &part).await?;
        brief(conn, &format!("ALTER INDEX {name} ATTACH PARTITION {child}")).await?;
    }
    Ok(())
}

/// Builds one table's index, whatever an earlier run left of it.
async fn concurrently(conn: &mut PgConnection, target: &Target<'_>) -> Result<(), MigrateError> {
    let Target { name, table, definition } = target;
    let mut tries = 1;
    loop {
        let schema = table.split_once('.').map_or("public", |(schema, _)| schema);
        let done = match state(conn, name, table).await? {
            State::Valid => return Ok(()),
            State::Invalid => {
                let drop = format!("DROP INDEX CONCURRENTLY IF EXISTS {schema}.{name}");
                under(conn, LOCK_TIMEOUT_CONCURRENT, &drop).await
            }
            // Nothing to build: no need for the three transactions of a concurrent build.
            State::Missing if is_empty(conn, table).await? => {
                let create = format!("CREATE INDEX {name} ON {table} {definition}");
                under(conn, LOCK_TIMEOUT_BRIEF, &create).await
            }
            State::Missing => {
                let create = format!("CREATE INDEX CONCURRENTLY {name} ON {table} {definition}");
                under(conn, LOCK_TIMEOUT_CONCURRENT, &create).await
            }
        };
        if let Err(error) = done {
            wait_or_fail(error, &mut tries).await?;
        }
    }
}

/// Runs a statement behind which writers would queue: it lets go soon and comes back.
pub(super) async fn brief(conn: &mut PgConnection, statement: &str) -> Result<(), MigrateError> {
    let mut tries = 1;
    while let Err(error) = under(conn, LOCK_TIMEOUT_BRIEF, statement).await {
        wait_or_fail(error, &mut tries).await?;
    }
    Ok(())
}

/// Runs a statement that may take as long as its table is large.
pub(super) async fn under(
    conn: &mut PgConnection,
    lock_timeout: &str,
    statement: &str,
) -> Result<(), sqlx::Error> {
    let settings = format!("SET lock_timeout = '{lock_timeout}'; SET statement_timeout = 0");
    conn.execute(settings.as_str()).await?;
    let done = conn.execute(statement).await.map(|_| ());
    conn.execute(session::TIMEOUTS).await?;
    done
}

async fn wait_or_fail(error: sqlx::Error, tries: &mut u32) -> Result<(), MigrateError> {
    // 55P03: no lock within the time-out; 40P01: a deadlock with a vacuum or another build.
    if *tries >= TRIES_MAX || !session::code_is(&error, &["55P03", "40P01"]) {
        return Err(error.into());
    }
    *tries += 1;
    tokio::time::sleep(PAUSE).await;
    Ok(())
}

/// Drops an index; false: it was not there.
async fn retire(conn: &mut PgConnection, name: &str) -> Result<bool, MigrateError> {
    let kind: Option<String> = sqlx::query_scalar(
        "SELECT relkind::text FROM pg_class WHERE oid = to_regclass('public.' || $1)",
    )
    .bind(name)
    .fetch_optional(&mut *conn)
    .await?;
    let Some(kind) = kind else { return Ok(false) };
    session::become_owner(conn).await?;
    // A partitioned index cannot be dropped concurrently; dropping takes no time once locked.
    if kind == "I" {
        brief(conn, &format!("DROP INDEX public.{name}")).await?;
    } else {
        under(conn, LOCK_TIMEOUT_CONCURRENT, &format!("DROP INDEX CONCURRENTLY public.{name}"))
            .await?;
    }
    Ok(true)
}

async fn state(conn: &mut PgConnection, name: &str, table: &str) -> Result<State, sqlx::Error> {
    let is_valid: Option<bool> = sqlx::query_scalar(
        "SELECT i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
         WHERE i.indrelid = to_regclass($2) AND c.relname = $1",
    )
    .bind(name)
    .bind(table)
    .fetch_optional(conn)
    .await?;
    Ok(match is_valid {
        None => State::Missing,
        Some(false) => State::Invalid,
        Some(true) => State::Valid,
    })
}

async fn is_partitioned(conn: &mut PgConnection, table: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("SELECT relkind = 'p' FROM pg_class WHERE oid = to_regclass($1)")
        .bind(table)
        .fetch_one(conn)
        .await
}

async fn is_empty(conn: &mut PgConnection, table: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("SELECT pg_relation_size(to_regclass($1)) = 0")
        .bind(table)
        .fetch_one(conn)
        .await
}

/// The partitions whose index is not yet part of the parent's.
async fn unattached(
    conn: &mut PgConnection,
    name: &str,
    table: &str,
) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT p.relname::text FROM pg_inherits h JOIN pg_class p ON p.oid = h.inhrelid
         WHERE h.inhparent = to_regclass($2) AND NOT EXISTS (
             SELECT FROM pg_inherits part JOIN pg_index i ON i.indexrelid = part.inhrelid
             WHERE part.inhparent = to_regclass($1) AND i.indrelid = p.oid)
         ORDER BY 1",
    )
    .bind(name)
    .bind(table)
    .fetch_all(conn)
    .await
}

/// Our tables belong to `undolog_owner`; the queue's may belong to whoever set it up, and then the
/// login has to be able to act as them.
async fn act_as_owner_of(conn: &mut PgConnection, index: &Index) -> Result<(), MigrateError> {
    let (is_ours, may): (bool, bool) = sqlx::query_as(
        "SELECT pg_get_userbyid(relowner) = 'undolog_owner',
                pg_has_role(session_user, relowner, 'USAGE')
         FROM pg_class WHERE oid = to_regclass($1)",
    )
    .bind(index.table)
    .fetch_one(&mut *conn)
    .await?;
    if is_ours {
        return session::become_owner(conn).await;
    }
    session::become_login(conn).await?;
    if may {
        return Ok(());
    }
    let Index { name, table, definition } = index;
    Err(MigrateError::NeedsAdministrator {
        login: sqlx::query_scalar("SELECT session_user::text").fetch_one(conn).await?,
        reason: format!("build an index on {table}, which somebody else owns"),
        statements: vec![format!("CREATE INDEX CONCURRENTLY {name} ON {table} {definition};")],
    })
}

#[cfg(test)]
mod tests;
