//! The brake of a mass expiry: what it compares with what, and whom it holds.

use undolog_store::{sessions::Begin, sweeps};
use uuid::Uuid;

use crate::{
    bench::Bench,
    walker::{run, worker_store},
};

const DAY_SECONDS: u32 = 86_400;

/// Sessions with a lease, begun long ago; `silent` ones were heard of before it began to run out.
async fn sessions(bench: &Bench, count: usize, lease_seconds: u32, silent: bool) -> Vec<Uuid> {
    let mut begun = Vec::new();
    for _ in 0..count {
        let session_id = Uuid::new_v4();
        let begin = Begin { session_id: Some(session_id), lease_seconds, ..bench.begin_step() };
        bench.store.run(begin).await.expect("begin");
        begun.push(session_id);
    }
    let silence = "UPDATE undolog_sessions SET last_rpc_at = now() - interval '2 days', \
        lease_renewed_at = now() - interval '2 days' WHERE session_id = ANY($1) AND $2";
    sqlx::query(silence).bind(&begun).bind(silent).execute(bench.db.pool()).await.expect("silent");
    // The engine's service has run all along.
    bench.expire(Uuid::nil()).await;
    begun
}

async fn count(bench: &Bench, sql: &str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(bench.db.pool()).await.expect(sql)
}

#[tokio::test]
async fn a_lost_session_with_a_long_lease_does_not_make_ordinary_losses_a_mass() {
    let bench = Bench::new().await;
    let store = worker_store(&bench).await;
    // Over a day many sessions of the ordinary length are lost one by one.
    let earlier = sessions(&bench, 30, 0, false).await;
    let failed = "UPDATE undolog_sessions SET state = 'failed', \
        lease_failed_at = now() - interval '1 hour' WHERE session_id = ANY($1)";
    sqlx::query(failed).bind(&earlier).execute(bench.db.pool()).await.expect("failed");
    sessions(&bench, 2, 0, true).await;
    sessions(&bench, 1, DAY_SECONDS, true).await;
    let swept = sweeps::sessions(&store).await.expect("sweep");
    assert_eq!((swept.settled, swept.left), (3, 0));
    assert_eq!(count(&bench, "SELECT count(*) FROM undolog_brakes").await, 0);
}

#[tokio::test]
async fn a_mass_of_one_length_holds_no_session_of_another() {
    let bench = Bench::new().await;
    let store = worker_store(&bench).await;
    sessions(&bench, 30, DAY_SECONDS, true).await;
    sessions(&bench, 2, 0, true).await;
    let swept = sweeps::sessions(&store).await.expect("sweep");
    assert_eq!((swept.settled, swept.left), (2, 30), "those of five minutes go on");
    let held = "SELECT count(*) FROM undolog_brakes WHERE state = 'raised' \
        AND cardinality(classes) = 1 AND hold_until > now() + interval '1 day'";
    assert_eq!(count(&bench, held).await, 1);
    sessions(&bench, 2, 0, true).await;
    assert_eq!(sweeps::sessions(&store).await.expect("sweep").settled, 2, "later ones too");
}

#[tokio::test]
async fn a_session_that_cannot_be_failed_takes_nobodys_place() {
    let bench = Bench::new().await;
    let store = worker_store(&bench).await;
    let lost = sessions(&bench, 30, 0, true).await;
    assert_eq!(sweeps::sessions(&store).await.expect("sweep").settled, 0, "the brake is raised");
    // The oldest one is broken.
    let broken = format!(
        "UPDATE undolog_sessions SET lease_renewed_at = now() - interval '3 days' \
         WHERE session_id = '{0}'; \
         CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN RAISE EXCEPTION ''broken''; END'; \
         CREATE TRIGGER broken BEFORE UPDATE ON undolog_sessions FOR EACH ROW \
         WHEN (OLD.session_id = '{0}') EXECUTE FUNCTION broken()",
        lost[0]
    );
    run(bench.db.pool(), &broken).await;
    for _ in 0..2 {
        run(
            bench.db.pool(),
            "UPDATE undolog_brakes SET hold_until = now(), \
             last_failed_at = last_failed_at - interval '15 seconds'",
        )
        .await;
        assert_eq!(sweeps::sessions(&store).await.expect("sweep").settled, 1);
    }
    let active = "SELECT count(*) FROM undolog_sessions WHERE state = 'active'";
    assert_eq!(count(&bench, active).await, 28);
}

/// The sessions that a plan's node and those below it read.
fn sum(node: &serde_json::Value) -> i64 {
    let number = |key: &str| node[key].as_f64().unwrap_or(0.0);
    let own = if node["Relation Name"] == "undolog_sessions" {
        let rows = number("Actual Rows") + number("Rows Removed by Filter");
        #[expect(clippy::cast_possible_truncation, reason = "a count of rows")]
        let read = (rows * number("Actual Loops")) as i64;
        read
    } else {
        0
    };
    own + node["Plans"].as_array().map_or(0, |plans| plans.iter().map(sum).sum())
}

/// Rows that a statement reads, whether it returns them or not, by table.
async fn rows_read(bench: &Bench, sql: &str) -> i64 {
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}");
    let plan: serde_json::Value =
        sqlx::query_scalar(&explain).fetch_one(bench.db.pool()).await.expect("a plan");
    sum(&plan[0]["Plan"])
}

#[tokio::test]
async fn the_brake_reads_few_rows_however_many_sessions_there_were() {
    let bench = Bench::new().await;
    bench.begin().await;
    run(
        bench.db.pool(),
        "INSERT INTO undolog_sessions (session_id, org_id, principal, lease_ms, lease_renewed_at, \
           state, started_at, last_rpc_at, session_month, lease_failed_at) \
         SELECT gen_random_uuid(), s.org_id, s.principal, 300000, now(), \
           (CASE WHEN n <= 5000 THEN 'active' ELSE 'failed' END)::undolog_session_state, \
           s.started_at, now(), s.session_month, \
           CASE WHEN n > 5000 AND n % 100 = 0 THEN now() - n * interval '10 minutes' END \
         FROM undolog_sessions s, generate_series(1, 60000) n; \
         ANALYZE undolog_sessions",
    )
    .await;
    let sql = include_str!("../../../store/sql/brake_counts.sql")
        .replace("$1", &format!("'{}'::uuid", bench.org.id))
        .replace("$2", "'{300000,1200000}'")
        .replace("$3", "'{4,0}'");
    let read = rows_read(&bench, &sql).await;
    assert!(read < 200, "{read} rows were read");
}
