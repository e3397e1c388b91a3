//! The months of the partitioned tables: each `migrate` makes those that are missing.

use std::time::Duration;

use chrono::NaiveDate;
use sqlx::{Connection as _, Executor as _, FromRow, PgConnection};

use super::{MigrateError, session::code_is};

/// Months that lie ahead after a migration, as after the first one.
pub const MONTHS_AHEAD: i32 = 14;
/// How often a month is tried whose table is busy.
const TRIES_MAX: u32 = 30;
const PAUSE: Duration = Duration::from_secs(1);

/// A month that a table lacks.
#[derive(Debug, FromRow)]
struct Missing {
    parent: String,
    tag: String,
    first_day: NaiveDate,
    end_day: NaiveDate,
    newest: Option<String>,
}

/// Makes the missing partitions of every table, like the newest one that it has. Answers their
/// names. The caller acts as the owner and holds the migration's lock.
pub(super) async fn premake(conn: &mut PgConnection) -> Result<Vec<String>, MigrateError> {
    let missing: Vec<Missing> = sqlx::query_as(include_str!("../../sql/partitions_missing.sql"))
        .bind(MONTHS_AHEAD)
        .fetch_all(&mut *conn)
        .await?;
    let mut made = Vec::with_capacity(missing.len());
    for month in &missing {
        made.push(make(conn, month).await?);
    }
    Ok(made)
}

/// Makes one partition, again while its table is busy: nobody waits behind a migration for long.
async fn make(conn: &mut PgConnection, month: &Missing) -> Result<String, MigrateError> {
    let name = format!("{}_{}", month.parent, month.tag);
    let mut tries = 1;
    loop {
        match attach(conn, month, &name).await {
            Ok(()) => return Ok(name),
            Err(error) if tries < TRIES_MAX && code_is(&error, &["55P03", "40P01"]) => {
                tracing::info!(partition = name, tries, "a table is busy, trying again");
                tries += 1;
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

async fn attach(conn: &mut PgConnection, month: &Missing, name: &str) -> Result<(), sqlx::Error> {
    let newest = month.newest.as_deref().ok_or(sqlx::Error::RowNotFound)?;
    let newest_tag = newest.get(newest.len().saturating_sub(month.tag.len())..).unwrap_or(newest);
    let statements: Vec<String> = sqlx::query_scalar(include_str!("../../sql/partitions_like.sql"))
        .bind(&month.parent)
        .bind(name)
        .bind(newest)
        .bind(&month.tag)
        .bind(newest_tag)
        .fetch_all(&mut *conn)
        .await?;
    let mut tx = conn.begin().await?;
    for statement in &statements {
        tx.execute(statement.as_str()).await?;
    }
    // Attaching lets everybody read and write meanwhile; making it in place would not.
    let attach = format!(
        "ALTER TABLE public.{} ATTACH PARTITION public.{name} FOR VALUES FROM ('{}') TO ('{}')",
        month.parent, month.first_day, month.end_day,
    );
    tx.execute(attach.as_str()).await?;
    tx.commit().await
}
