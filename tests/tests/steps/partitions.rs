//! What a statement costs goes with the months that it asks about, not with those that there are:
//! it binds both ends of a month's key, and no step has its statements planned again at each call.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use sqlx::{Connection as _, Executor as _, PgConnection, PgPool};
use undolog_core::{retry::CallOutcome, state::FailedEffect};
use undolog_store::{
    Store, StoreOptions,
    intercept::Intercept,
    sessions::RollbackScope,
    walk::{Advance, Next},
};
use undolog_tests::pg::TestDb;
use uuid::Uuid;

use crate::{
    bench::{Bench, executed},
    statements::{files, prepare},
    walker::{report_of, rollback_id},
};

/// Statements that ask about all months, or whose months come from rows that they read.
const ALL_MONTHS: &[(&str, &str)] = &[
    ("approval_get", "the months come from the session; one row, found by its key"),
    ("approval_list", "the months come from each session; a page, each row found by its key"),
    ("operate_bulk", "the months come from each session; as many letters as a page may read"),
    ("operate_dead_letters", "the months come from each session; a page of dead letters"),
    ("operate_queue", "counts what is unknown in an organisation, from a partial index"),
    ("operate_unknown_until", "looks through what is unknown, from a partial index"),
    ("operate_unknown", "lists what is unknown in an organisation, from a partial index"),
    ("probe_claim", "finds what is unknown in an organisation, from a partial index"),
    ("sweep_due_orgs", "finds the organisations with work, from partial indexes"),
    ("sweep_grants", "finds live grants of an organisation, from partial indexes"),
    ("sweep_sessions", "the months come from each session"),
    ("upstream_approved", "the months come from each session; a page, found by keys"),
    ("watch_held", "asks for one event of an organisation, whatever its session's month"),
    ("watch_org", "follows the events of an organisation, whatever their session's month"),
];

/// The partitions that a statement would read for times within this month. The plan is one for any
/// values; what its bounds exclude is known when the values are.
async fn partitions(conn: &mut PgConnection, sql: &str) -> BTreeMap<String, BTreeSet<String>> {
    let kinds = prepare(conn, sql).await.expect("prepare");
    let value = |kind: &String| match kind.as_str() {
        "timestamp with time zone" => "clock_timestamp()",
        "date" => "date_trunc('month', now() AT TIME ZONE 'UTC')::date",
        _ => "NULL",
    };
    let values: Vec<&str> = kinds.iter().map(value).collect();
    let values = match values.join(", ") {
        none if none.is_empty() => none,
        values => format!("({values})"),
    };
    let explain = format!("EXPLAIN (COSTS OFF) EXECUTE statement{values}");
    let plan: Vec<String> =
        sqlx::query_scalar(&explain).persistent(false).fetch_all(&mut *conn).await.expect("a plan");
    let mut read: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in plan.iter().filter(|line| line.contains("Scan")) {
        let names = line.split_whitespace().skip_while(|word| *word != "on").skip(1);
        for name in names.take(1) {
            let (table, month) = name.split_at(name.len().saturating_sub("_2026_01".len()));
            let is_month = month.chars().all(|c| c == '_' || c.is_ascii_digit());
            if is_month && table.starts_with("undolog_") {
                read.entry(table.to_owned()).or_default().insert(month.to_owned());
            }
        }
    }
    read
}

#[tokio::test]
async fn every_statement_of_a_partitioned_table_binds_both_ends() {
    let db = TestDb::new().await;
    let mut conn = PgConnection::connect(db.url()).await.expect("connect");
    conn.execute("SET plan_cache_mode = force_generic_plan").await.expect("one plan for all");
    let mut complaints = Vec::new();
    let mut bounded = 0;
    for file in files() {
        let name = file.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
        let sql = std::fs::read_to_string(&file).expect("a statement");
        let listed = ALL_MONTHS.iter().any(|(known, _)| *known == name);
        let read = partitions(&mut conn, &sql).await;
        let most = read.values().map(BTreeSet::len).max().unwrap_or(0);
        bounded += usize::from(matches!(most, 1..=2));
        if most > 2 && !listed {
            complaints.push(format!("{name}: {most} months of {:?}", read.keys()));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    assert!(bounded > 15, "the partitions are found: {bounded}");
}

/// One connection, so that what it planned can be asked of it.
async fn alone(bench: &Bench, role: &str, name: &str) -> Store {
    let mut options = StoreOptions::new(bench.db.url().to_owned().into(), Some(role), name);
    options.connections_max = 1;
    Store::connect(&options).await.expect("connect")
}

/// How often each statement was planned for its values, on the connection of this pool.
async fn planned(pool: &PgPool) -> BTreeMap<String, i64> {
    sqlx::query_as("SELECT statement, custom_plans FROM pg_prepared_statements")
        .persistent(false)
        .fetch_all(pool)
        .await
        .expect("the prepared statements")
        .into_iter()
        .collect()
}

/// How often each table that steps read under their session's lock was read from end to end, as
/// the connection of this pool reports it.
async fn scanned(pool: &PgPool) -> BTreeMap<String, i64> {
    sqlx::raw_sql("SELECT pg_stat_force_next_flush()").execute(pool).await.expect("report");
    sqlx::query_as(
        "SELECT relname::text, seq_scan FROM pg_stat_all_tables WHERE schemaname = 'public' \
         AND relname ~ '^undolog_(undo|effect|sign|dead|approval)'",
    )
    .persistent(false)
    .fetch_all(pool)
    .await
    .expect("the tables' numbers")
    .into_iter()
    .collect()
}

fn grown(before: &BTreeMap<String, i64>, after: &BTreeMap<String, i64>) -> Vec<String> {
    let more = |(name, n): (&String, &i64)| {
        let by = n - before.get(name).copied().unwrap_or(0);
        (by > 0).then(|| format!("{by} x {name}"))
    };
    after.iter().filter_map(more).collect()
}

/// A session of six calls, the last of which fails; then its rollback.
async fn round(bench: &mut Bench, engine: &Store, worker: &Store) {
    bench.session = Uuid::new_v4();
    let mut last = None;
    for step in 1..=6 {
        let call =
            Intercept::new(bench.input(step, "pay", &json!({"step": step}))).expect("a call");
        let effect = executed(&engine.run(call.clone()).await.expect("a grant"));
        if step < 6 {
            let mut commit = bench.commit_step(effect, &json!({"id": step}));
            engine.run(commit.clone()).await.expect("commit");
            commit.attempt = 1;
            engine.run(commit).await.expect("the same again");
            engine.run(call).await.expect("a replay");
        }
        last = Some(effect);
    }
    let failed = last.expect("a call");
    engine.run(bench.fail_step(failed, FailedEffect::NotApplied)).await.expect("fail");
    let id = rollback_id(bench).await;
    let claim = undolog_store::walk::claim(worker, bench.org.id, id, "worker-1").await;
    let claim = claim.expect("claim").expect("due and free");
    let mut report = None;
    loop {
        let step = Advance {
            claim: claim.clone(),
            report: report.take(),
            place: undolog_store::walk::Place::Worker,
            may_go_on: true,
            jitter_percent: 0,
        };
        match worker.run(step).await.expect("a step") {
            Next::Call(call) => report = Some(report_of(&call, CallOutcome::Done)),
            Next::Again => {}
            Next::Done => return,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn no_statement_of_a_step_is_planned_for_each_call_or_scans_a_table() {
    let mut bench = Bench::new().await;
    let engine = alone(&bench, "undolog_app", "one-engine").await;
    let worker = alone(&bench, "undolog_worker", "one-worker").await;
    for _ in 0..7 {
        round(&mut bench, &engine, &worker).await;
    }
    // A table that is known to be small looks cheap to read from end to end; it will grow.
    bench.run_sql("ANALYZE").await;
    for pool in [engine.pool(), worker.pool()] {
        sqlx::raw_sql("DISCARD PLANS").execute(pool).await.expect("plan again");
    }
    round(&mut bench, &engine, &worker).await;
    let before = (planned(engine.pool()).await, planned(worker.pool()).await);
    let scans = scanned(engine.pool()).await;
    round(&mut bench, &engine, &worker).await;
    let after = (planned(engine.pool()).await, planned(worker.pool()).await);
    scanned(worker.pool()).await;
    let looked = scanned(engine.pool()).await;
    assert!(after.0.len() > 10 && after.1.len() > 10, "statements are kept: {after:?}");
    assert_eq!(grown(&before.0, &after.0), <[String; 0]>::default(), "planned by the engine");
    assert_eq!(grown(&before.1, &after.1), <[String; 0]>::default(), "planned by the worker");
    assert_eq!(grown(&scans, &looked), <[String; 0]>::default(), "read from end to end");
    let scope = RollbackScope::Whole;
    bench.rollback(scope).await.expect("it is rolled back already");
    bench.check().await;
}

/// How often rows of sessions were written, as the connection of this pool reports it.
async fn written(pool: &PgPool) -> i64 {
    sqlx::raw_sql("SELECT pg_stat_force_next_flush()").execute(pool).await.expect("report");
    sqlx::query_scalar(
        "SELECT n_tup_upd FROM pg_stat_all_tables WHERE relname = 'undolog_sessions'",
    )
    .persistent(false)
    .fetch_one(pool)
    .await
    .expect("the table's numbers")
}

#[tokio::test]
async fn a_step_writes_its_session_once_and_leaves_no_setting_behind() {
    let bench = Bench::new().await;
    let engine = alone(&bench, "undolog_app", "one-engine").await;
    let call = |step| Intercept::new(bench.input(step, "pay", &json!({}))).expect("a call");
    engine.run(call(1)).await.expect("begins the session");
    let before = written(engine.pool()).await;
    let effect = executed(&engine.run(call(2)).await.expect("a grant"));
    assert_eq!(written(engine.pool()).await - before, 1, "Intercept");
    engine.run(bench.commit_step(effect, &json!({}))).await.expect("commit");
    assert_eq!(written(engine.pool()).await - before, 2, "Commit");
    let wipe = Intercept::new(bench.input(3, "wipe", &json!({}))).expect("a call");
    engine.run(wipe).await.expect("asked");
    assert_eq!(written(engine.pool()).await - before, 3, "Intercept that asks for an approval");

    let left: Vec<Option<String>> = sqlx::query_scalar(
        "SELECT current_setting(name, true) FROM unnest(ARRAY['undolog.counters_folded', \
         'plan_cache_mode', 'enable_seqscan']) AS name",
    )
    .persistent(false)
    .fetch_all(engine.pool())
    .await
    .expect("the settings");
    let left: Vec<&str> = left.iter().map(|value| value.as_deref().unwrap_or("")).collect();
    assert_eq!(left, ["", "auto", "on"], "they end with the transaction");
    bench.check().await;
}
