//! `undolog migrate`: bring a database to the schema of this build.

use clap::Args;
use secrecy::ExposeSecret as _;
use serde_json::json;
use undolog_store::{
    error::Trouble,
    migrate::{self, Logins, MigrateError, MigrationState},
};

use crate::{error::CliError, out::Out, owner::OwnerArgs};

/// Arguments of `undolog migrate`.
#[derive(Debug, Args)]
pub struct MigrateArgs {
    /// The database.
    #[command(flatten)]
    pub owner: OwnerArgs,
    /// Change nothing: show what is applied, and fail when something is missing.
    #[arg(long)]
    pub check: bool,
    /// The login that engines connect with; it may then act as undolog_app.
    #[arg(long, env = "UNDOLOG_APP_LOGIN", value_name = "LOGIN")]
    pub app_login: Option<String>,
    /// The login that workers connect with; it may then act as undolog_worker.
    #[arg(long, env = "UNDOLOG_WORKER_LOGIN", value_name = "LOGIN")]
    pub worker_login: Option<String>,
}

/// Migrates, or looks.
pub async fn run(args: MigrateArgs, out: &Out) -> Result<(), CliError> {
    let url = args.owner.url()?;
    if args.check {
        check(url.expose_secret(), out).await
    } else {
        let logins = Logins { app: args.app_login, worker: args.worker_login };
        apply(url.expose_secret(), &logins, out).await
    }
}

async fn apply(url: &str, logins: &Logins, out: &Out) -> Result<(), CliError> {
    let report = migrate::migrate_for(url, logins).await?;
    if out.is_json() {
        return out.json(&json!({
            "server_version_num": report.server_version_num,
            "roles_created": report.roles_created,
            "grants": report.grants,
            "applied": report.applied.iter().map(as_json).collect::<Vec<_>>(),
            "already_applied": report.already_applied,
            "indexes_built": report.indexes_built,
            "indexes_dropped": report.indexes_dropped,
            "constraints_unchecked": report.constraints_unchecked,
            "months_made": report.months_made,
        }));
    }
    for role in &report.roles_created {
        out.line(format!("created role {role}"))?;
    }
    for migration in &report.applied {
        out.line(format!("applied {}", as_text(migration)))?;
    }
    for index in &report.indexes_built {
        out.line(format!("built index {index}"))?;
    }
    for index in &report.indexes_dropped {
        out.line(format!("dropped index {index}"))?;
    }
    for constraint in &report.constraints_unchecked {
        out.line(format!("{constraint} holds for new rows; some older rows break it"))?;
    }
    for partition in &report.months_made {
        out.line(format!("made partition {partition}"))?;
    }
    let (now, before) = (report.applied.len(), report.already_applied);
    out.line(format!("the schema is current: {now} migrations applied now, {before} before"))
}

async fn check(url: &str, out: &Out) -> Result<(), CliError> {
    let status = migrate::status(url).await?;
    if out.is_json() {
        out.json(&json!({
            "server_version_num": status.server_version_num,
            "roles_missing": status.roles_missing,
            "migrations": status.migrations.iter().map(as_json).collect::<Vec<_>>(),
            "indexes_missing": status.indexes_missing,
            "is_current": status.is_current(),
        }))?;
    } else {
        for role in &status.roles_missing {
            out.line(format!("role {role} is missing"))?;
        }
        for migration in &status.migrations {
            let state = match (migration.applied, migration.checksum_differs) {
                (false, _) => "missing",
                (true, true) => "applied with other contents",
                (true, false) => "applied",
            };
            out.line(format!("{state}: {}", as_text(migration)))?;
        }
        for index in &status.indexes_missing {
            out.line(format!("index {index} is missing"))?;
        }
    }
    if status.is_current() {
        return Ok(());
    }
    Err(CliError::Refused {
        reason: "SCHEMA_NOT_CURRENT".to_owned(),
        message: "this database needs `undolog migrate`".to_owned(),
    })
}

fn as_text(migration: &MigrationState) -> String {
    format!("{} {:04} {}", migration.source.name(), migration.version, migration.description)
}

fn as_json(migration: &MigrationState) -> serde_json::Value {
    json!({
        "source": migration.source.name(),
        "version": migration.version,
        "description": migration.description,
        "applied": migration.applied,
        "checksum_differs": migration.checksum_differs,
    })
}

impl From<MigrateError> for CliError {
    fn from(error: MigrateError) -> Self {
        let reason = match &error {
            MigrateError::ServerTooOld { .. } => "SERVER_TOO_OLD",
            MigrateError::NotUtf8 { .. } => "NOT_UTF8",
            MigrateError::NeedsAdministrator { .. } => "NEEDS_ADMINISTRATOR",
            MigrateError::NoLogin { .. } => "NO_LOGIN",
            MigrateError::RoleTooPowerful { .. } => "ROLE_TOO_POWERFUL",
            MigrateError::Busy { .. } => return Self::Unavailable(error.to_string()),
            MigrateError::Migration { .. } => "MIGRATION_FAILED",
            MigrateError::Index { .. } => "INDEX_NOT_BUILT",
            MigrateError::QueueContract(_) => "QUEUE_CONTRACT",
            MigrateError::Database(error) => {
                return Self::of_database(Trouble::of(error), error);
            }
            other => return Self::Failed(other.to_string()),
        };
        Self::Refused { reason: reason.to_owned(), message: error.to_string() }
    }
}
