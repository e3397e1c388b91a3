//! The migrated database that every test's database is a copy of.

use std::path::Path;

use sqlx::{Connection, PgConnection};

use super::folders::workspace_root;

/// What makes the schema: a change of any of these files makes another template.
const SCHEMA_SOURCES: [&str; 2] = ["migrations", "store/src/migrate"];

/// The template's name; it changes with the schema.
pub(crate) fn name() -> String {
    let mut hasher = blake3::Hasher::new();
    for folder in SCHEMA_SOURCES {
        let folder = workspace_root().join(folder);
        let mut files: Vec<_> = std::fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("read {}: {error}", folder.display()))
            .map(|entry| entry.expect("a folder entry").path())
            .filter(|path| path.is_file())
            .collect();
        files.sort();
        for file in files {
            hasher.update(file.as_os_str().as_encoded_bytes());
            hasher.update(&read(&file));
        }
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

fn read(file: &Path) -> Vec<u8> {
    std::fs::read(file).unwrap_or_else(|error| panic!("read {}: {error}", file.display()))
}
