//! Checks the rows that are older than a constraint.
//!
//! A migration adds a constraint to a table that exists as `NOT VALID`: it binds new rows at once
//! and reads no old ones under the lock. The old ones are checked here, in a transaction that
//! nobody waits for.

use sqlx::PgConnection;

use super::{MigrateError, MigrateReport, indexes, session};

/// Validates every constraint of ours that is not. One that old rows break keeps binding new rows,
/// and is reported.
pub(super) async fn validate(
    conn: &mut PgConnection,
    report: &mut MigrateReport,
) -> Result<(), MigrateError> {
    session::become_owner(conn).await?;
    // Those of partitions go with their parent's.
    let open: Vec<(String, String)> = sqlx::query_as(
        "SELECT c.conrelid::regclass::text, quote_ident(c.conname)
         FROM pg_constraint c JOIN pg_class t ON t.oid = c.conrelid
         WHERE NOT c.convalidated AND c.conparentid = 0 AND NOT t.relispartition
           AND t.relnamespace = 'public'::regnamespace AND t.relname LIKE 'undolog\\_%'
         ORDER BY 1, 2",
    )
    .fetch_all(&mut *conn)
    .await?;
    for (table, name) in open {
        let statement = format!("ALTER TABLE {table} VALIDATE CONSTRAINT {name}");
        match indexes::brief(conn, &statement).await {
            Ok(()) => {}
            Err(MigrateError::Database(error))
                if session::code_is(&error, &["23514", "23503", "23502"]) =>
            {
                tracing::warn!(table, constraint = name, "older rows break this constraint");
                report.constraints_unchecked.push(format!("{table}.{name}"));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
