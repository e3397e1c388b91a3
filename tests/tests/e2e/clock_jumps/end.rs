//! Looks at the rows: where sessions stand, and what is open when everything has ended.

use std::collections::HashMap;

use sqlx::PgPool;
use undolog_tests::check::fold_check;
use undolog_tests::{World, eventually};
use uuid::Uuid;

use super::book::Book;

/// The state of every session.
pub(super) async fn states(pool: &PgPool) -> HashMap<Uuid, String> {
    let states = sqlx::query_as("SELECT session_id, state::text FROM undolog_sessions");
    let states: Vec<(Uuid, String)> = states.fetch_all(pool).await.expect("the sessions");
    states.into_iter().collect()
}

/// Each of these counts what must not be there at the end.
const OPEN: [(&str, &str); 14] = [
    (
        "calls that are under way, unknown or not decided",
        "undolog_effect_log WHERE state IN ('pending', 'executing', 'unknown', 'compensating') \
         OR (state = 'approved' AND lease_ms IS NOT NULL)",
    ),
    ("requests that wait for people", "undolog_approval_requests WHERE state = 'pending'"),
    ("rollbacks that have not ended", "undolog_rollbacks WHERE state NOT IN ('compensated')"),
    (
        "entries of an ended rollback that are open",
        "undolog_undo_stack u JOIN undolog_sessions s USING (session_id) \
         WHERE u.state IN ('pending', 'running') AND s.state = 'compensated'",
    ),
    ("dead letters", "undolog_dead_letters WHERE closed_at IS NULL"),
    ("notifications that wait", "undolog_notifications WHERE state = 'pending'"),
    ("notifications that were given up", "undolog_notifications WHERE state = 'failed'"),
    ("brakes that hold", "undolog_brakes WHERE hold_until > clock_timestamp()"),
    (
        "breakers that opened later than now",
        "undolog_route_breakers WHERE opened_at > clock_timestamp()",
    ),
    (
        "tickets that nobody takes, or that are due far ahead",
        "apalis.jobs WHERE status = 'Pending' AND \
         run_at NOT BETWEEN clock_timestamp() - interval '2 minutes' \
         AND clock_timestamp() + interval '2 minutes'",
    ),
    (
        "tickets that somebody has held for long",
        "apalis.jobs WHERE status = 'Running' AND \
         lock_at NOT BETWEEN clock_timestamp() - interval '5 minutes' AND clock_timestamp()",
    ),
    (
        "schedules that do not run",
        "undolog_schedules WHERE name <> 'partitions' AND claimed_at NOT BETWEEN \
         clock_timestamp() - interval '5 minutes' AND clock_timestamp()",
    ),
    (
        "engines whose ticks are not now",
        "undolog_service WHERE resumed_at > clock_timestamp() \
         OR last_tick_at NOT BETWEEN clock_timestamp() - interval '15 s' AND clock_timestamp()",
    ),
    (
        "a clock that is thought to have stepped back",
        "undolog_cluster WHERE clock_seen_at > clock_timestamp()",
    ),
];

/// What is open, in words.
pub(super) async fn open(pool: &PgPool) -> String {
    let mut found = Vec::new();
    for (what, rows) in OPEN {
        let sql = format!("SELECT count(*) FROM {rows}");
        let count: i64 = sqlx::query_scalar(&sql).fetch_one(pool).await.expect(what);
        if count > 0 {
            found.push(format!("{count} {what}"));
        }
    }
    found.join(", ")
}

/// Nothing is open, and each session's events lead to its rows.
pub(super) async fn check(world: &World, book: &Book) {
    eventually("nothing is left", || async {
        let open = open(world.pool()).await;
        if open.is_empty() { Ok(()) } else { Err(open) }
    })
    .await;
    for story in book.sessions() {
        fold_check(world.pool(), story.session).await;
    }
}
