//! The migrated database that every test's database is a copy of.

use sqlx::migrate::Migrator;
use sqlx::{Connection, PgConnection};

/// The migrations as this build carries them. What lies on the disk may be newer already.
static MIGRATIONS: Migrator = sqlx::migrate!("../migrations");

/// The code that prepares roles and rights around them.
const PREPARATION: [&[u8]; 11] = [
    include_bytes!("../../../store/src/migrate/apalis.rs"),
    include_bytes!("../../../store/src/migrate/constraints.rs"),
    include_bytes!("../../../store/src/migrate/indexes.rs"),
    include_bytes!("../../../store/src/migrate/ledger.rs"),
    include_bytes!("../../../store/src/migrate/mod.rs"),
    include_bytes!("../../../store/src/migrate/months.rs"),
    include_bytes!("../../../store/src/migrate/roles.rs"),
    include_bytes!("../../../store/src/migrate/session.rs"),
    include_bytes!("../../../store/src/migrate/wanted.rs"),
    include_bytes!("../../../store/sql/partitions_like.sql"),
    include_bytes!("../../../store/sql/partitions_missing.sql"),
];

/// The template's name; it changes with the schema.
pub(crate) fn name() -> String {
    let mut hasher = blake3::Hasher::new();
    for migration in MIGRATIONS.iter() {
        hasher.update(&migration.checksum);
    }
    for text in PREPARATION {
        hasher.update(text);
    }
    format!("template_{}", &hasher.finalize().to_hex()[..16])
}

/// Makes the template if this server does not have it. The caller holds the server's lock.
pub(crate) async fn ensure(url_of: impl Fn(&str) -> String) -> String {
    let name = name();
    let mut admin = connect(&url_of("postgres")).await;
    let known: Option<String> =
        sqlx::query_scalar("SELECT datname FROM pg_database WHERE datname = $1")
            .bind(&name)
            .fetch_optional(&mut admin)
            .await
            .expect("read the databases");
    if known.is_none() {
        run(&mut admin, "DROP DATABASE IF EXISTS template_building WITH (FORCE)").await;
        run(&mut admin, "CREATE DATABASE template_building TEMPLATE template0").await;
        let url = url_of("template_building");
        undolog_store::migrate::migrate(&url).await.unwrap_or_else(|e| panic!("migrate: {e}"));
        run(&mut admin, &format!("ALTER DATABASE template_building RENAME TO {name}")).await;
    }
    // Nothing of ours serves on a server without fsync unless it says so itself. One that was
    // started by an older build of the kit does not.
    run(&mut admin, "ALTER ROLE ALL SET undolog.data_may_be_lost = 'on'").await;
    admin.close().await.expect("close");
    name
}

/// Connects as superuser.
pub(crate) async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.unwrap_or_else(|error| panic!("connect to {url}: {error}"))
}

/// Runs one statement of the kit's own.
pub(crate) async fn run(conn: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(sql).execute(conn).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}
