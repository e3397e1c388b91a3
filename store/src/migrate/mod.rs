//! Brings a database to the schema that this build needs: roles, our migrations, and the queue
//! library's, in one run that is safe to repeat and to race.
//!
//! Everything happens on one direct connection, under an advisory lock of the database. Objects are
//! made by `undolog_owner`; the login that runs this only makes the roles and hands out rights.

mod apalis;
mod constraints;
mod indexes;
mod ledger;
mod months;
mod roles;
mod session;
pub(crate) mod wanted;

use sqlx::{ConnectOptions, Connection, PgConnection};

use crate::settings::Settings;

pub(crate) use ledger::read as known_migrations;
pub use ledger::{MigrationState, Source};
pub use months::MONTHS_AHEAD;
pub use roles::{ROLES, RUNTIME_ROLES};

/// The oldest server that is supported, as `server_version_num` counts.
pub const MIN_SERVER_VERSION_NUM: i32 = 150_000;

/// What [`migrate`] found and did.
#[derive(Debug, Clone, Default)]
pub struct MigrateReport {
    /// `server_version_num` of the server.
    pub server_version_num: i32,
    /// Roles that this run created.
    pub roles_created: Vec<String>,
    /// Grants that this run made for roles, the database and its schemas, as the statements read.
    pub grants: Vec<String>,
    /// Migrations that this run applied, in the order in which they ran.
    pub applied: Vec<MigrationState>,
    /// How many migrations the database had before.
    pub already_applied: usize,
    /// Indexes that this run built, beside those of the migrations.
    pub indexes_built: Vec<String>,
    /// Indexes that this run dropped because nothing needs them any more.
    pub indexes_dropped: Vec<String>,
    /// Constraints that bind new rows and are broken by older ones, as `table.constraint`.
    pub constraints_unchecked: Vec<String>,
    /// The partitions that this run made for months to come.
    pub months_made: Vec<String>,
}

/// What [`status`] found; nothing was changed.
#[derive(Debug, Clone)]
pub struct Status {
    /// `server_version_num` of the server.
    pub server_version_num: i32,
    /// The roles that do not exist yet.
    pub roles_missing: Vec<String>,
    /// Every migration that this build knows.
    pub migrations: Vec<MigrationState>,
    /// Indexes that are missing or only half built.
    pub indexes_missing: Vec<String>,
}

impl Status {
    /// Whether this build can run against the database without a migration.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.roles_missing.is_empty()
            && self.indexes_missing.is_empty()
            && self.migrations.iter().all(|m| m.applied && !m.checksum_differs)
    }
}

/// Why a database could not be migrated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MigrateError {
    /// The server is older than what is supported.
    #[error("PostgreSQL 15 or newer is needed; this server is {server_version_num}")]
    ServerTooOld {
        /// Its `server_version_num`.
        server_version_num: i32,
    },
    /// The database would change or refuse characters of arguments and results.
    #[error("this database stores texts as {server_encoding}: create one with ENCODING 'UTF8'")]
    NotUtf8 {
        /// Its `server_encoding`.
        server_encoding: String,
    },
    /// The login lacks rights that somebody else has to give; the statements do it.
    #[error(
        "{login} may not prepare this database ({reason}). Let an administrator run, in this \
         database:\n\n{}\n\nand then migrate again.", .statements.join("\n")
    )]
    NeedsAdministrator {
        /// The login that was used.
        login: String,
        /// What it was not allowed to do.
        reason: String,
        /// What an administrator has to run, one statement each.
        statements: Vec<String>,
    },
    /// A role exists that would see through row-level security.
    #[error("role {role} must not be {attribute}: row-level security would not bind it")]
    RoleTooPowerful {
        /// The role.
        role: String,
        /// The attribute or membership that it must not have.
        attribute: String,
    },
    /// A login that was named does not exist.
    #[error("there is no login {login:?} in this cluster: CREATE ROLE it with LOGIN first")]
    NoLogin {
        /// The login.
        login: String,
    },
    /// Another migration of this database ran for too long.
    #[error("another migration of this database has been running for {waited_seconds} s")]
    Busy {
        /// How long this run waited.
        waited_seconds: u64,
    },
    /// A migration failed; the database is as it was before that file.
    #[error("migrating ({source_name}): {error}")]
    Migration {
        /// Whose migration it was.
        source_name: &'static str,
        /// What the server or the migrator said.
        #[source]
        error: sqlx::migrate::MigrateError,
    },
    /// An index was built and is still not whole.
    #[error("the index {name} is {state} after it was built; run `undolog migrate` again")]
    Index {
        /// The index.
        name: String,
        /// What the catalogue says about it.
        state: String,
    },
    /// The queue library's schema is not the one that this build was written for.
    #[error("the queue's schema differs from the one this build needs: {0}")]
    QueueContract(String),
    /// The server refused a statement or went away.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// The logins that engines and workers connect with, where each has one of its own. They exist
/// already: whoever makes a login chooses how it proves itself.
#[derive(Debug, Clone, Default)]
pub struct Logins {
    /// The engines'.
    pub app: Option<String>,
    /// The workers'.
    pub worker: Option<String>,
}

/// Migrates the database at `url`, which must be a direct connection (no transaction pooler).
///
/// # Errors
/// See [`MigrateError`]; a failed run leaves whole migrations only and may be repeated.
pub async fn migrate(url: &str) -> Result<MigrateReport, MigrateError> {
    migrate_for(url, &Logins::default()).await
}

/// The same, and lets these logins act as their roles.
///
/// # Errors
/// See [`migrate`].
pub async fn migrate_for(url: &str, logins: &Logins) -> Result<MigrateReport, MigrateError> {
    let mut conn = connect(url).await?;
    let outcome = migrate_on(&mut conn, logins).await;
    // Closing also frees the advisory locks, so a failure to say goodbye does no harm.
    let closed = conn.close().await;
    let report = outcome.map_err(|error| match error {
        MigrateError::NeedsAdministrator { login, reason, mut statements } => {
            statements.extend(logins.statements());
            MigrateError::NeedsAdministrator { login, reason, statements }
        }
        other => other,
    })?;
    closed?;
    Ok(report)
}

/// Looks at the database at `url` and changes nothing.
///
/// # Errors
/// When the database cannot be reached or read.
pub async fn status(url: &str) -> Result<Status, MigrateError> {
    let mut conn = connect(url).await?;
    let server_version_num = session::prepare(&mut conn).await?;
    let status = Status {
        server_version_num,
        roles_missing: roles::missing(&mut conn).await?,
        migrations: ledger::read(&mut conn).await?,
        indexes_missing: indexes::missing(&mut conn).await?,
    };
    conn.close().await?;
    Ok(status)
}

/// The migrations that this build carries for its own tables.
pub(crate) fn embedded() -> sqlx::migrate::Migrator {
    let mut migrator = sqlx::migrate!("../migrations");
    migrator.set_ignore_missing(true);
    migrator
}

async fn connect(url: &str) -> Result<PgConnection, MigrateError> {
    let options = crate::url::options(url)?.application_name("undolog-migrate");
    Ok(Settings::new(&session::TIMEOUTS_MS).on(options).connect().await?)
}

async fn migrate_on(
    conn: &mut PgConnection,
    logins: &Logins,
) -> Result<MigrateReport, MigrateError> {
    let mut report = MigrateReport {
        server_version_num: session::prepare(conn).await?,
        ..MigrateReport::default()
    };
    session::lock(conn).await?;
    roles::ensure(conn, &mut report).await?;
    roles::let_in(conn, logins, &mut report).await?;
    let before = ledger::read(conn).await?;
    ledger::share(conn, &mut report).await?;

    // The queue's tables come first, so that ours may refer to them.
    apalis::migrate(conn, &mut report).await?;
    session::become_owner(conn).await?;
    session::run(conn, &embedded(), Source::UndoLog).await?;
    ledger::grant_reading(conn).await?;
    constraints::validate(conn, &mut report).await?;
    indexes::build(conn, &mut report).await?;
    if crate::guard!("migrate.months") {
        report.months_made = months::premake(conn).await?;
    }
    session::become_login(conn).await?;

    report.already_applied = before.iter().filter(|m| m.applied).count();
    report.applied = ledger::read(conn)
        .await?
        .into_iter()
        .filter(|now| now.applied && !before.iter().any(|was| was.applied && was.is_same(now)))
        .collect();
    session::unlock(conn).await?;
    Ok(report)
}
