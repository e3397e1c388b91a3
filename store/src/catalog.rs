//! The self-check at the start of every runtime process: is this role harmless, does row-level
//! security bind it on every tenant table, is the schema this build's, are there partitions ahead?
//! A process for which one answer is no must not serve.

use std::fmt;

use sqlx::PgConnection;

use crate::{
    migrate,
    settings::{self, Settings},
};

/// With fewer monthly partitions ahead of the current one, a process that starts says so. There is
/// no DEFAULT partition, so running out of them stops every write; this many leave time to act. It
/// does not serve when the current or the next one is missing.
pub const PARTITIONS_AHEAD_MIN: i64 = 3;

/// The kind of what is no reason yet.
const WARNING: &str = "partitions_few";

const CHECK: &str = include_str!("../sql/catalog_check.sql");

/// One reason why a process must not serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// A stable word for the kind: `superuser`, `bypassrls`, `owner`, `member`, `may_delete`,
    /// `may_rewrite`, `partition_granted`, `missing_table`, `rls_not_enabled`, `rls_not_forced`,
    /// `no_isolation`, `open_policy`, `public_grant`, `definer_view`, `partitions`, `migrations`,
    /// `encoding`, `durability`, `replication_role`, `settings`.
    pub kind: String,
    /// What was found, for people.
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.detail, self.kind)
    }
}

/// Why the self-check did not pass.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// The role or the schema is unfit; every reason is listed.
    #[error("this database role and schema must not serve: {}", list(.0))]
    Unfit(Vec<Finding>),
    /// The catalogue could not be read.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl CatalogError {
    /// The reasons, if the catalogue could be read.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        match self {
            Self::Unfit(findings) => findings,
            Self::Database(_) => &[],
        }
    }
}

fn list(findings: &[Finding]) -> String {
    findings.iter().map(Finding::to_string).collect::<Vec<_>>().join("; ")
}

/// Checks the role that `conn` acts as, and the schema that it would work on.
///
/// # Errors
/// [`CatalogError::Unfit`] with every finding; anything else when the catalogue cannot be read.
pub async fn check_runtime(conn: &mut PgConnection) -> Result<(), CatalogError> {
    let rows: Vec<(String, String)> =
        sqlx::query_as(CHECK).bind(PARTITIONS_AHEAD_MIN).fetch_all(&mut *conn).await?;
    let findings = rows.into_iter().map(|(kind, detail)| Finding { kind, detail });
    let (warnings, mut findings): (Vec<_>, Vec<_>) =
        findings.partition(|finding| finding.kind == WARNING);
    for warning in &warnings {
        tracing::warn!("{}", warning.detail);
    }
    findings.extend(migration_findings(conn).await?);
    findings.extend(settings::server_findings(conn).await?);
    if findings.is_empty() { Ok(()) } else { Err(CatalogError::Unfit(findings)) }
}

/// The same for a process, and that what its connections are set to is in force.
pub(crate) async fn check_process(
    conn: &mut PgConnection,
    settings: &Settings,
) -> Result<(), CatalogError> {
    // Without them the rest could not be trusted: another schema may stand in front of ours.
    let findings = settings.check(conn).await?;
    if !findings.is_empty() {
        return Err(CatalogError::Unfit(findings));
    }
    check_runtime(conn).await
}

/// Migrations that this build carries and the database has not had, or had differently. A database
/// that is further than this build is fine: migrations only add until no old build is left.
async fn migration_findings(conn: &mut PgConnection) -> Result<Vec<Finding>, CatalogError> {
    let finding = |detail: String| Finding { kind: "migrations".to_owned(), detail };
    let may_read: Option<bool> = sqlx::query_scalar(
        "SELECT has_table_privilege(to_regclass('public._sqlx_migrations'), 'SELECT')",
    )
    .fetch_one(&mut *conn)
    .await?;
    if may_read == Some(false) {
        let detail = "the table of applied migrations cannot be read; run `undolog migrate`";
        return Ok(vec![finding(detail.to_owned())]);
    }
    let states = migrate::known_migrations(conn).await?;
    let findings = states.iter().filter_map(|migration| {
        let name = format!(
            "{} {:04} ({})",
            migration.source.name(),
            migration.version,
            migration.description
        );
        if !migration.applied {
            Some(finding(format!("migration {name} is missing; run `undolog migrate`")))
        } else if migration.checksum_differs {
            Some(finding(format!("migration {name} was applied with other contents")))
        } else {
            None
        }
    });
    Ok(findings.collect())
}
