//! Who may migrate: an administrator, a login that may create roles, or one for whom an
//! administrator ran the printed statements.

use sqlx::{Connection, PgConnection};
use undolog_store::catalog::check_runtime;
use undolog_store::migrate::{Logins, MigrateError, ROLES, migrate, migrate_for, status};

use crate::kit::{Server, as_role, run};

#[tokio::test]
async fn a_login_without_rights_is_told_what_to_run() {
    let server = Server::start("plain");
    server.create_database("shop").await;
    let mut admin = server.connect("shop").await;
    run(&mut admin, "CREATE ROLE plain LOGIN").await;
    let url = server.url_of("plain", "shop");

    let error = migrate(&url).await.unwrap_err();
    let MigrateError::NeedsAdministrator { statements, .. } = &error else { panic!("{error}") };
    assert!(error.to_string().contains("CREATE ROLE undolog_owner NOLOGIN;"), "{error}");
    let before = status(&url).await.unwrap();
    assert_eq!(before.roles_missing, ROLES);
    assert!(!before.is_current());

    // The statements are enough, exactly as printed.
    for statement in statements {
        run(&mut admin, statement).await;
    }
    let report = migrate(&url).await.unwrap();
    assert!(report.roles_created.is_empty(), "{report:?}");
    assert!(status(&url).await.unwrap().is_current());
    check_as(&server.url_as("undolog_app", "shop")).await;
    let again = migrate(&url).await.unwrap();
    assert!(again.applied.is_empty(), "{again:?}");
}

#[tokio::test]
async fn named_logins_serve_after_one_run() {
    let server = Server::start("named");
    server.create_database("shop").await;
    let mut admin = server.connect("shop").await;
    let logins = Logins { app: Some("app".to_owned()), worker: Some("worker".to_owned()) };
    let error = migrate_for(&server.url("shop"), &logins).await.unwrap_err();
    assert!(matches!(&error, MigrateError::NoLogin { login } if login == "app"), "{error}");
    run(&mut admin, "CREATE ROLE plain LOGIN; CREATE ROLE app LOGIN; CREATE ROLE worker LOGIN")
        .await;
    // One who may not is told everything at once.
    let error = migrate_for(&server.url_of("plain", "shop"), &logins).await.unwrap_err();
    let MigrateError::NeedsAdministrator { statements, .. } = &error else { panic!("{error}") };
    for statement in statements {
        run(&mut admin, statement).await;
    }
    let report = migrate_for(&server.url_of("plain", "shop"), &logins).await.unwrap();
    assert!(report.grants.is_empty(), "{report:?}");
    for (login, role) in [("app", "undolog_app"), ("worker", "undolog_worker")] {
        check_as(&as_role(&server.url_of(login, "shop"), role)).await;
    }
}

#[tokio::test]
async fn a_login_that_may_create_roles_needs_no_superuser() {
    let server = Server::start("creator");
    let mut admin = server.connect("postgres").await;
    run(&mut admin, "CREATE ROLE creator LOGIN CREATEROLE").await;
    run(&mut admin, "CREATE DATABASE shop OWNER creator").await;
    let url = server.url_of("creator", "shop");
    let report = migrate(&url).await.unwrap();
    assert_eq!(report.roles_created, ROLES);
    // One URL serves a developer: the same login acts as each runtime role.
    check_as(&as_role(&url, "undolog_app")).await;
    check_as(&as_role(&url, "undolog_worker")).await;
    assert!(migrate(&url).await.unwrap().grants.is_empty());
    // The login itself can become the owner, so it must not serve.
    let mut conn = PgConnection::connect(&url).await.unwrap();
    let error = check_runtime(&mut conn).await.unwrap_err();
    assert!(error.findings().iter().any(|f| f.kind == "member"), "{error}");
}

#[tokio::test]
async fn roles_made_beforehand_may_log_in_themselves() {
    let server = Server::start("beforehand");
    let mut admin = server.connect("postgres").await;
    run(
        &mut admin,
        "CREATE ROLE undolog_owner LOGIN; CREATE ROLE undolog_app LOGIN;
         CREATE ROLE undolog_worker LOGIN; CREATE ROLE undolog_auth NOLOGIN;
         GRANT undolog_auth TO undolog_owner;
         GRANT CREATE ON DATABASE postgres TO undolog_owner;
         GRANT USAGE, CREATE ON SCHEMA public TO undolog_owner WITH GRANT OPTION;",
    )
    .await;
    let report = migrate(&server.url_of("undolog_owner", "postgres")).await.unwrap();
    assert!(report.grants.is_empty() && report.roles_created.is_empty(), "{report:?}");
    check_as(&server.url_of("undolog_app", "postgres")).await;
    check_as(&server.url_of("undolog_worker", "postgres")).await;
}

#[tokio::test]
async fn a_role_that_sees_through_policies_is_refused() {
    let server = Server::start("powerful");
    let mut admin = server.connect("postgres").await;
    for (break_it, mend_it, word) in [
        ("CREATE ROLE undolog_app SUPERUSER", "ALTER ROLE undolog_app NOSUPERUSER", "SUPERUSER"),
        ("ALTER ROLE undolog_app BYPASSRLS", "ALTER ROLE undolog_app NOBYPASSRLS", "BYPASSRLS"),
        (
            "GRANT undolog_owner TO undolog_app",
            "REVOKE undolog_owner FROM undolog_app",
            "a member of undolog_owner",
        ),
    ] {
        run(&mut admin, break_it).await;
        let error = migrate(&server.url("postgres")).await.unwrap_err().to_string();
        assert!(error.contains(&format!("undolog_app must not be {word}")), "{error}");
        run(&mut admin, mend_it).await;
    }
    migrate(&server.url("postgres")).await.unwrap();
}

async fn check_as(url: &str) {
    let mut conn = PgConnection::connect(url).await.unwrap();
    check_runtime(&mut conn).await.unwrap();
}
