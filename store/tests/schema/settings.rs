//! Whatever the database, the role or the server's file preset: our connections are set as our
//! statements need it, and a process refuses what it cannot set.

use secrecy::SecretString;
use sqlx::{Connection as _, PgConnection};
use undolog_store::{
    Store, StoreOptions,
    catalog::CatalogError,
    error::{StepError, Trouble},
    migrate::{MigrateError, migrate},
    owner::Owner,
    service,
};

use crate::kit::{Server, run};

/// Presets that change what a statement means, where it looks, or whether a commit survives.
const PRESETS: &[(&str, &str)] = &[
    ("search_path", "elsewhere"),
    ("row_security", "off"),
    ("default_transaction_read_only", "on"),
    ("default_transaction_isolation", "serializable"),
    ("default_transaction_deferrable", "on"),
    ("synchronous_commit", "off"),
    ("standard_conforming_strings", "off"),
    ("array_nulls", "off"),
    ("transform_null_equals", "on"),
    ("quote_all_identifiers", "on"),
    ("gin_fuzzy_search_limit", "1"),
    ("bytea_output", "escape"),
    ("datestyle", "German"),
    ("intervalstyle", "sql_standard"),
    ("timezone", "Asia/Kathmandu"),
    ("statement_timeout", "1"),
    ("lock_timeout", "1"),
    ("idle_session_timeout", "1"),
    ("plan_cache_mode", "force_custom_plan"),
    ("jit", "on"),
];

/// With one connection, so that a test finds what it left on it.
fn options(url: String) -> StoreOptions {
    let url = SecretString::from(url);
    let options = StoreOptions::new(url, Some("undolog_app"), "settings-test");
    StoreOptions { connections_max: 1, ..options }
}

async fn store(server: &Server) -> Store {
    Store::connect(&options(server.url("postgres"))).await.unwrap()
}

async fn shows(store: &Store, name: &str) -> String {
    sqlx::query_scalar("SELECT current_setting($1)")
        .bind(name)
        .fetch_one(store.pool())
        .await
        .unwrap()
}

#[tokio::test]
async fn presets_of_the_database_change_nothing_for_our_connections() {
    let (server, _) = Server::migrated("presets").await;
    let mut admin = server.connect("postgres").await;
    for (name, value) in PRESETS {
        run(&mut admin, &format!("ALTER DATABASE postgres SET {name} = '{value}'")).await;
    }
    let store = store(&server).await;
    service::check_runtime(&store).await.unwrap();
    assert_eq!(shows(&store, "search_path").await, "public,pg_temp");
    assert_eq!(shows(&store, "synchronous_commit").await, "on");
    assert_eq!(shows(&store, "default_transaction_read_only").await, "off");
    service::tick(&store, "engine").await.expect("a write");

    // What is stronger stays.
    run(&mut admin, "ALTER DATABASE postgres SET synchronous_commit = remote_apply").await;
    let stronger = self::store(&server).await;
    assert_eq!(shows(&stronger, "synchronous_commit").await, "remote_apply");
    store.close().await;
    stronger.close().await;
    // The owner and the migrations are as little impressed.
    migrate(&server.url("postgres")).await.unwrap();
}

#[tokio::test]
async fn settings_that_are_dropped_on_the_way_are_noticed() {
    let (server, _) = Server::migrated("dropped").await;
    let store = store(&server).await;
    // What a pooler in transaction mode hands over: a connection with other settings.
    let mut conn = store.pool().acquire().await.unwrap();
    sqlx::query("SET statement_timeout = 0").execute(&mut *conn).await.unwrap();
    sqlx::query("SET synchronous_commit = off").execute(&mut *conn).await.unwrap();
    drop(conn);
    let refused = service::check_runtime(&store).await.unwrap_err();
    let CatalogError::Unfit(findings) = &refused else { panic!("{refused}") };
    assert!(findings.iter().all(|finding| finding.kind == "settings"), "{refused}");
    let text = refused.to_string();
    for part in ["statement_timeout is 0 instead of 15000", "pooler", "synchronous_commit"] {
        assert!(text.contains(part), "{part} not in {text}");
    }
}

#[tokio::test]
async fn a_database_of_another_encoding_is_refused() {
    let server = Server::start("latin1");
    let mut admin = server.connect("postgres").await;
    run(
        &mut admin,
        "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0",
    )
    .await;
    let refused = migrate(&server.url("latin")).await.unwrap_err();
    assert!(matches!(refused, MigrateError::NotUtf8 { .. }), "{refused}");
    let mut conn = server.connect("latin").await;
    let refused = undolog_store::catalog::check_runtime(&mut conn).await.unwrap_err();
    assert!(refused.findings().iter().any(|finding| finding.kind == "encoding"), "{refused}");
}

#[tokio::test]
async fn connections_that_turn_out_read_only_are_thrown_away() {
    let (server, _) = Server::migrated("read-only").await;
    let store = store(&server).await;
    let mut conn = store.pool().acquire().await.unwrap();
    sqlx::query("SET default_transaction_read_only = on").execute(&mut *conn).await.unwrap();
    drop(conn);
    let write = "UPDATE undolog_service SET service = service";
    let refused = sqlx::query(write).execute(store.pool()).await.map(drop);
    let refused = store.note(refused.map_err(StepError::from)).unwrap_err();
    assert!(refused.is_unavailable(), "{refused}");
    sqlx::query(write).execute(store.pool()).await.expect("a connection that writes");
}

#[tokio::test]
async fn trouble_with_the_database_is_told_apart() {
    let (server, _) = Server::migrated("trouble").await;
    let mut admin = server.connect("postgres").await;
    run(&mut admin, "CREATE ROLE nobody LOGIN; CREATE ROLE locked NOLOGIN").await;
    let trouble = async |url: String, role: Option<&str>| {
        let options = StoreOptions::new(SecretString::from(url), role, "trouble-test");
        let options = StoreOptions { acquire_timeout_ms: 500, ..options };
        match Store::connect(&options).await {
            Err(StepError::Db(error)) => {
                (Trouble::of(&error), StepError::Db(error).is_unavailable())
            }
            other => panic!("{other:?}"),
        }
    };
    let app = Some("undolog_app");
    assert_eq!(trouble(server.url("nowhere"), app).await, (Trouble::NoDatabase, true));
    assert_eq!(
        trouble(server.url_of("nobody", "postgres"), app).await,
        (Trouble::Permission, true)
    );
    assert_eq!(trouble(server.url_of("locked", "postgres"), None).await, (Trouble::Login, true));
    assert_eq!(trouble(server.url("postgres"), Some("no_role")).await, (Trouble::Schema, true));
    let refused = "postgres://postgres@127.0.0.1:1/postgres".to_owned();
    assert_eq!(trouble(refused, None).await, (Trouble::Away, true));
    let wrong = "postgres://postgres@127.0.0.1:99999/postgres".to_owned();
    assert_eq!(trouble(wrong, None).await, (Trouble::Url, false));
}

#[tokio::test]
async fn every_error_that_decides_nothing_may_be_tried_again() {
    let (server, _) = Server::migrated("codes").await;
    let mut conn = PgConnection::connect(&server.url("postgres")).await.unwrap();
    for (code, may_try) in [
        ("53100", true),
        ("58030", true),
        ("57014", true),
        ("25006", true),
        ("XX000", true),
        ("0A000", true),
        ("23505", false),
        ("22003", false),
    ] {
        let raise = format!("DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '{code}'; END $$");
        let error = sqlx::query(&raise).execute(&mut conn).await.unwrap_err();
        assert_eq!(StepError::Db(error).is_unavailable(), may_try, "{code}");
    }
}

#[tokio::test]
async fn a_url_with_several_hosts_is_refused_before_anything_is_looked_up() {
    let servers = [Server::start("hosts-a"), Server::start("hosts-b")];
    let ports = servers.each_ref().map(|server| {
        let url = server.url("postgres");
        let (_, rest) = url.rsplit_once(':').unwrap();
        rest.split('/').next().unwrap().to_owned()
    });
    let [a, b] = ports;
    let url = format!("postgres://postgres@127.0.0.1:{a},127.0.0.1:{b}/postgres");
    let url = url + "?target_session_attrs=read-write";
    let options = StoreOptions::new(url.clone().into(), None, "hosts");
    let told = [
        Store::connect(&options).await.unwrap_err().to_string(),
        migrate(&url).await.unwrap_err().to_string(),
        Owner::connect(&url.into()).await.unwrap_err().to_string(),
    ];
    for error in told {
        assert!(error.contains("names several hosts; name one"), "{error}");
    }
}
