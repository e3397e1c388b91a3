//! The queue library's schema: made by its own migrations, checked against what this build was
//! written for, and opened to the worker.

use sqlx::{Executor, PgConnection};

use super::{MigrateError, MigrateReport, Source, ledger, roles, session};

/// The columns that our statements and the library's use, in order: table, column, type, NOT NULL.
const COLUMNS: &[(&str, &str, &str, bool)] = &[
    ("jobs", "job", "jsonb", true),
    ("jobs", "id", "text", true),
    ("jobs", "job_type", "text", true),
    ("jobs", "status", "text", true),
    ("jobs", "attempts", "integer", true),
    ("jobs", "max_attempts", "integer", true),
    ("jobs", "run_at", "timestamp with time zone", true),
    ("jobs", "last_error", "text", false),
    ("jobs", "lock_at", "timestamp with time zone", false),
    ("jobs", "lock_by", "text", false),
    ("jobs", "done_at", "timestamp with time zone", false),
    ("jobs", "priority", "integer", false),
    ("workers", "id", "text", true),
    ("workers", "worker_type", "text", true),
    ("workers", "storage_name", "text", true),
    ("workers", "layers", "text", true),
    ("workers", "last_seen", "timestamp with time zone", true),
];

const WORKER_GRANTS: &str = "GRANT USAGE ON SCHEMA apalis TO undolog_worker;
    GRANT SELECT, INSERT, UPDATE, DELETE ON apalis.jobs, apalis.workers TO undolog_worker;
    GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA apalis TO undolog_worker";

/// Runs the library's migrations, as `undolog_owner` unless somebody else owns the schema already.
pub(super) async fn migrate(
    conn: &mut PgConnection,
    report: &mut MigrateReport,
) -> Result<(), MigrateError> {
    let foreign: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM pg_namespace
         WHERE nspname = 'apalis' AND pg_get_userbyid(nspowner) <> 'undolog_owner')",
    )
    .fetch_one(&mut *conn)
    .await?;
    if !foreign {
        session::become_owner(conn).await?;
    }
    session::run(conn, &ledger::apalis_migrator(), Source::Apalis).await?;
    check(conn).await?;
    if !worker_may_use(conn).await? {
        conn.execute(WORKER_GRANTS).await?;
    }
    fit(conn).await?;
    session::become_login(conn).await?;
    if foreign {
        share(conn, report).await?;
    }
    Ok(())
}

/// What the library's schema has to be changed in, with how it is seen that it is not: each time
/// that a database is migrated, since the library's own migrations can undo it.
const FITTINGS: &[(&str, &str)] = &[
    // Notifies at every insert, with a payload that nobody listens to, and transactions that notify
    // commit one after the other. `undolog_enqueue` says by itself what is due.
    (
        "SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'apalis.jobs'::regclass
                        AND tgname = 'notify_workers' AND tgenabled <> 'D')",
        "ALTER TABLE apalis.jobs DISABLE TRIGGER notify_workers",
    ),
    // A worker whose row was deleted could fetch nothing until it says again that it lives.
    (
        "SELECT EXISTS (SELECT FROM pg_constraint WHERE conrelid = 'apalis.jobs'::regclass
                        AND conname = 'fk_worker_lock_by')",
        "ALTER TABLE apalis.jobs DROP CONSTRAINT fk_worker_lock_by",
    ),
    // Without a primary key, a publication of all tables would refuse every update and delete.
    (
        "SELECT relreplident <> 'i' FROM pg_class WHERE oid = 'apalis.jobs'::regclass",
        "ALTER TABLE apalis.jobs REPLICA IDENTITY USING INDEX unique_job_id",
    ),
    (
        "SELECT relreplident <> 'i' FROM pg_class WHERE oid = 'apalis.workers'::regclass",
        "ALTER TABLE apalis.workers REPLICA IDENTITY USING INDEX unique_worker_id",
    ),
];
/// How often a statement is tried that met a busy table.
const TRIES_MAX: u32 = 30;

/// Changes what has to be changed. In a schema of somebody else's that takes rights over its
/// tables; without them all works as long as nobody publishes the tables, and it is said.
async fn fit(conn: &mut PgConnection) -> Result<(), MigrateError> {
    for (is_missing, statement) in FITTINGS {
        let is_missing: bool = sqlx::query_scalar(is_missing).fetch_one(&mut *conn).await?;
        let mut tries = 1;
        while is_missing && let Err(error) = conn.execute(*statement).await {
            if session::code_is(&error, &["42501"]) {
                tracing::warn!(statement, "let the owner of the schema apalis run this");
                break;
            }
            if tries >= TRIES_MAX || !session::code_is(&error, &["55P03", "40P01"]) {
                return Err(error.into());
            }
            tries += 1;
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
    }
    Ok(())
}

/// A schema that somebody else set up stays theirs; our owner may use it and pass its rights on.
async fn share(conn: &mut PgConnection, report: &mut MigrateReport) -> Result<(), MigrateError> {
    let shared: bool = sqlx::query_scalar(
        "SELECT has_table_privilege('undolog_owner', 'apalis.jobs', 'INSERT WITH GRANT OPTION')",
    )
    .fetch_one(&mut *conn)
    .await?;
    if shared {
        return Ok(());
    }
    for statement in [
        "GRANT USAGE ON SCHEMA apalis TO undolog_owner WITH GRANT OPTION",
        "GRANT ALL ON ALL TABLES IN SCHEMA apalis TO undolog_owner WITH GRANT OPTION",
        "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA apalis TO undolog_owner WITH GRANT OPTION",
    ] {
        roles::grant(conn, statement, "share the schema apalis with undolog_owner", report).await?;
    }
    Ok(())
}

async fn worker_may_use(conn: &mut PgConnection) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT has_schema_privilege('undolog_worker', 'apalis', 'USAGE')
            AND has_table_privilege('undolog_worker', 'apalis.jobs', 'DELETE')
            AND has_table_privilege('undolog_worker', 'apalis.workers', 'DELETE')",
    )
    .fetch_one(conn)
    .await
}

/// Compares the schema with the list above; a changed library must not be met in production.
async fn check(conn: &mut PgConnection) -> Result<(), MigrateError> {
    let found: Vec<(String, String, String, bool)> = sqlx::query_as(
        "SELECT c.relname::text, a.attname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull
         FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
         WHERE c.relnamespace = 'apalis'::regnamespace AND c.relname IN ('jobs', 'workers')
           AND a.attnum > 0 AND NOT a.attisdropped
         ORDER BY c.relname, a.attnum",
    )
    .fetch_all(&mut *conn)
    .await?;
    let found: Vec<(&str, &str, &str, bool)> =
        found.iter().map(|(t, c, ty, n)| (t.as_str(), c.as_str(), ty.as_str(), *n)).collect();
    if found != COLUMNS {
        return Err(MigrateError::QueueContract(difference(&found)));
    }
    let (unique_id, get_jobs): (bool, bool) = sqlx::query_as(
        "SELECT EXISTS (SELECT FROM pg_indexes WHERE schemaname = 'apalis'
                        AND indexname = 'unique_job_id'
                        AND indexdef LIKE 'CREATE UNIQUE INDEX % (id)'),
                to_regprocedure('apalis.get_jobs(text, text, integer)') IS NOT NULL",
    )
    .fetch_one(conn)
    .await?;
    if !unique_id {
        return Err(MigrateError::QueueContract("no unique index on apalis.jobs (id)".to_owned()));
    }
    if !get_jobs {
        return Err(MigrateError::QueueContract("no function apalis.get_jobs".to_owned()));
    }
    Ok(())
}

fn difference(found: &[(&str, &str, &str, bool)]) -> String {
    let missing = COLUMNS.iter().filter(|column| !found.contains(column));
    let extra = found.iter().filter(|column| !COLUMNS.contains(column));
    let show = |(table, column, kind, not_null): &(&str, &str, &str, bool)| {
        format!("apalis.{table}.{column} {kind}{}", if *not_null { " NOT NULL" } else { "" })
    };
    format!(
        "missing [{}], unexpected [{}]",
        missing.map(show).collect::<Vec<_>>().join(", "),
        extra.map(show).collect::<Vec<_>>().join(", "),
    )
}

#[cfg(test)]
mod tests {
    use super::{COLUMNS, difference};

    #[test]
    fn a_difference_names_what_is_missing_and_what_is_new() {
        let mut found = COLUMNS.to_vec();
        found.pop();
        found.push(("workers", "zone", "text", false));
        assert_eq!(
            difference(&found),
            "missing [apalis.workers.last_seen timestamp with time zone NOT NULL], \
             unexpected [apalis.workers.zone text]"
        );
    }
}
