//! The database keeps some limits by itself, in defaults of columns and in functions. They are
//! those of the core.

use sqlx::PgConnection;
use undolog_core::limits::{
    APPROVAL_TIMEOUT_SECONDS_DEFAULT, AUTO_APPROVE_GRACE_SECONDS, IDLE_SESSION_SECONDS,
    IMPLICIT_SILENCE_SECONDS, PROXIES_GONE_SECONDS, RESUME_WINDOW_SECONDS,
    SESSION_LEASE_SECONDS_MIN, TICK_LATE_MS, UNDO_WINDOW_SECONDS,
};

use crate::kit::{ORG_A, Server, run};

const T: &str = "timestamptz '2026-01-01 00:00:00+00'";

async fn answer<A>(conn: &mut PgConnection, sql: &str) -> A
where
    A: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
{
    sqlx::query_scalar(sql).fetch_one(conn).await.unwrap_or_else(|error| panic!("{error}\n{sql}"))
}

fn ms(seconds: u32) -> i64 {
    i64::from(seconds) * 1000
}

#[tokio::test]
async fn a_new_organisation_has_the_documented_windows() {
    let (server, _) = Server::migrated("limits-orgs").await;
    let mut conn = server.connect("postgres").await;
    let found: Vec<i32> = sqlx::query_scalar(
        "WITH o AS (INSERT INTO undolog_orgs (name, slug) VALUES ('acme', 'acme') RETURNING *) \
         SELECT unnest(ARRAY[default_approval_timeout_seconds, idle_session_seconds, \
           resume_window_seconds, undo_window_seconds]) FROM o",
    )
    .fetch_all(&mut conn)
    .await
    .unwrap();
    let wanted = [
        APPROVAL_TIMEOUT_SECONDS_DEFAULT,
        IDLE_SESSION_SECONDS,
        RESUME_WINDOW_SECONDS,
        UNDO_WINDOW_SECONDS,
    ];
    assert_eq!(found, wanted.map(|seconds| i32::try_from(seconds).unwrap()));
}

#[tokio::test]
async fn a_late_tick_is_an_outage_and_a_second_one_soon_after_is_the_same() {
    let (server, _) = Server::migrated("limits-ticks").await;
    let mut conn = server.connect("postgres").await;
    // A tick so many milliseconds after the last one: does everything count anew from it?
    for (late, is_outage) in [(0, false), (1, true)] {
        let gap = i64::try_from(TICK_LATE_MS).unwrap() + late;
        for sign in [1, -1] {
            let sql = format!(
                "SELECT resumed = {T} + {sign} * {gap} * interval '1 ms' AND resumed <> {T} \
                 FROM undolog_ticked({T}, {T} - interval '1 day', NULL, \
                   {T} + {sign} * {gap} * interval '1 ms')"
            );
            assert_eq!(answer::<bool>(&mut conn, &sql).await, is_outage, "{sql}");
        }
        let sql =
            format!("SELECT undolog_running_since(false, {T} + {gap} * interval '1 ms') IS NULL");
        run(
            &mut conn,
            &format!(
                "INSERT INTO undolog_service (service, last_tick_at, resumed_at) \
             VALUES ('engine', {T}, {T}) ON CONFLICT (service) DO NOTHING"
            ),
        )
        .await;
        assert_eq!(answer::<bool>(&mut conn, &sql).await, is_outage, "{sql}");
    }
    // An outage that follows so long after the end of the one before: is it the same?
    for (late, is_same) in [(-1, true), (0, false)] {
        let after = ms(AUTO_APPROVE_GRACE_SECONDS) + late;
        let sql = format!(
            "SELECT away = {T} - interval '1 hour' \
             FROM undolog_ticked({T} + {after} * interval '1 ms', {T}, {T} - interval '1 hour', \
               {T} + interval '1 day')"
        );
        assert_eq!(answer::<bool>(&mut conn, &sql).await, is_same, "{sql}");
        run(&mut conn, &format!("UPDATE undolog_service SET away_from = {T} - interval '1 hour'"))
            .await;
        let sql = format!(
            "SELECT undolog_approval_is_held({T} - interval '1 minute', false, \
               {T} + {after} * interval '1 ms')"
        );
        assert_eq!(answer::<bool>(&mut conn, &sql).await, is_same, "{sql}");
    }
}

#[tokio::test]
async fn proxies_are_gone_after_the_time_that_the_core_names() {
    let (server, _) = Server::migrated("limits-proxies").await;
    let mut conn = server.connect("postgres").await;
    run(
        &mut conn,
        &format!(
            "INSERT INTO undolog_orgs (org_id, name, slug) VALUES ('{ORG_A}', 'acme', 'acme'); \
         INSERT INTO undolog_service (service, last_tick_at, resumed_at) \
           VALUES ('engine', {T}, {T} - interval '1 day'); \
         INSERT INTO undolog_proxies (org_id, last_tick_at, resumed_at) \
           VALUES ('{ORG_A}', {T}, {T}); \
         SELECT set_config('undolog.current_org_id', '{ORG_A}', false)"
        ),
    )
    .await;
    for (late, is_gone) in [(0, false), (1, true)] {
        let at = format!("{T} + {} * interval '1 ms'", ms(PROXIES_GONE_SECONDS) + late);
        run(&mut conn, &format!("UPDATE undolog_service SET last_tick_at = {at}")).await;
        let sql = format!("SELECT undolog_running_since(true, {at}) IS NOT NULL");
        assert_eq!(answer::<bool>(&mut conn, &sql).await, is_gone, "{sql}");
    }
}

#[tokio::test]
async fn classes_of_leases_begin_at_the_shortest_one() {
    let (server, _) = Server::migrated("limits-leases").await;
    let mut conn = server.connect("postgres").await;
    let shortest = ms(SESSION_LEASE_SECONDS_MIN);
    for (lease, class) in [(1, shortest), (shortest, shortest), (shortest + 1, 2 * shortest)] {
        let sql = format!("SELECT undolog_lease_class({lease})");
        assert_eq!(answer::<i64>(&mut conn, &sql).await, class, "{sql}");
    }
}

#[tokio::test]
async fn a_silent_implicit_session_is_due_after_the_time_that_the_core_names() {
    let (server, _) = Server::migrated("limits-silence").await;
    let mut conn = server.connect("postgres").await;
    run(
        &mut conn,
        &format!(
            "INSERT INTO undolog_orgs (org_id, name, slug) VALUES ('{ORG_A}', 'acme', 'acme'); \
         INSERT INTO undolog_sessions (org_id, implicit, last_rpc_at, grant_lost_at) \
           VALUES ('{ORG_A}', true, {T}, {T})"
        ),
    )
    .await;
    let sql = format!(
        "SELECT extract(epoch FROM due_at - {T})::bigint FROM undolog_due WHERE kind = 'session'"
    );
    assert_eq!(answer::<i64>(&mut conn, &sql).await, i64::from(IMPLICIT_SILENCE_SECONDS));
}
