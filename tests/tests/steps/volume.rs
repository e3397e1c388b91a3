//! No statement of a sweep, a list or the hot path reads more than a bounded number of rows,
//! however much lies beside. The rows are counted by the server, for the roles that run the
//! statements: what row-level security does to a plan is seen here, and nowhere else.
//!
//! `UNDOLOG_VOLUME_LIVE` and `UNDOLOG_VOLUME_ENDED` say how many sessions there are
//! (`scripts/volume.sh`); the bounds are the same for every size.

use serde_json::Value;
use sqlx::{Connection as _, PgConnection};
use undolog_tests::pg::TestDb;

#[path = "volume/cases.rs"]
mod cases;
#[path = "volume/load.rs"]
mod load;

use cases::{Case, LARGE};

/// What running a statement took.
#[derive(Debug, PartialEq)]
struct Cost {
    /// Rows that were read from tables and indexes, also those that a filter threw away.
    rows: u64,
    /// Blocks.
    buffers: u64,
}

#[tokio::test]
async fn no_statement_reads_more_than_a_bounded_number_of_rows() {
    let db = TestDb::with_clock().await;
    in_the_middle_of_a_month(&db).await;
    let size = load::Size::wanted();
    load::load(&db, size).await;
    let ids = load::Ids::read(&db).await;
    let mut conn = PgConnection::connect(db.url()).await.expect("connect");
    let mut findings = Vec::new();
    for case in cases::all() {
        for mode in ["force_custom_plan", "force_generic_plan"] {
            let what = format!("{} ({}) under {mode}", case.file, case.what);
            match cost(&mut conn, &case, &ids, mode).await {
                Ok(cost) if cost.rows <= case.rows_max && cost.buffers <= case.buffers_max => {}
                Ok(cost) => findings.push(format!(
                    "{what}: {} rows of at most {}, {} blocks of at most {}",
                    cost.rows, case.rows_max, cost.buffers, case.buffers_max
                )),
                Err(error) => findings.push(format!("{what}: {error}")),
            }
        }
    }
    assert!(findings.is_empty(), "with {size:?}:\n  {}", findings.join("\n  "));
}

/// What is read depends on how a session's rows lie in months: on the first day of one they lie in
/// two, of which the newer has no statistics yet.
async fn in_the_middle_of_a_month(db: &TestDb) {
    let seconds: f64 = sqlx::query_scalar(
        "SELECT extract(epoch FROM date_trunc('month', now()) + interval '19 days' - now()) \
         ::float8",
    )
    .fetch_one(db.pool())
    .await
    .expect("the clock");
    #[expect(clippy::cast_possible_truncation, reason = "within a month")]
    db.clock().step(chrono::Duration::seconds(seconds as i64));
}

/// Runs a statement as its role and takes it back.
async fn cost(
    conn: &mut PgConnection,
    case: &Case,
    ids: &load::Ids,
    mode: &str,
) -> Result<Cost, sqlx::Error> {
    let org = if case.org.is_empty() { LARGE } else { case.org };
    let prepare = format!(
        "BEGIN; SET LOCAL ROLE {}; SET LOCAL undolog.current_org_id = '{org}'; \
         SET LOCAL jit = off; \
         SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL plan_cache_mode = {mode}; \
         PREPARE looked AS {}",
        case.role,
        cases::text(case.file),
    );
    let run = async {
        sqlx::raw_sql(&prepare).execute(&mut *conn).await?;
        let values = ids.put_in(case.values).replace("@org", &format!("'{org}'"));
        let values = if values.is_empty() { values } else { format!("({values})") };
        let explain =
            format!("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE looked{values}");
        sqlx::query_scalar::<_, Value>(&explain).persistent(false).fetch_one(&mut *conn).await
    };
    let plan = run.await;
    sqlx::raw_sql("ROLLBACK").execute(&mut *conn).await?;
    sqlx::raw_sql("DEALLOCATE ALL").execute(&mut *conn).await?;
    let plan = &plan?[0]["Plan"];
    Ok(Cost { rows: rows(plan), buffers: number(plan, "Shared Hit Blocks") + read(plan) })
}

fn read(plan: &Value) -> u64 {
    number(plan, "Shared Read Blocks")
}

/// The rows that the scans below a node read.
fn rows(plan: &Value) -> u64 {
    let kind = plan["Node Type"].as_str().unwrap_or_default();
    // What a block-range index answers is blocks; their rows are counted where they are read.
    let is_ranges = plan["Index Name"].as_str().is_some_and(|name| name.contains("brin"));
    let is_read = kind.ends_with("Scan") && plan.get("Relation Name").is_some()
        || kind == "Bitmap Index Scan" && !is_ranges;
    let own = ["Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck"];
    let mut sum = 0;
    if is_read {
        sum +=
            own.iter().map(|what| number(plan, what)).sum::<u64>() * number(plan, "Actual Loops");
    }
    let below = plan["Plans"].as_array().into_iter().flatten();
    sum + below.map(rows).sum::<u64>()
}

fn number(plan: &Value, what: &str) -> u64 {
    // Newer servers print averages with decimals.
    let value = plan.get(what).and_then(Value::as_f64).unwrap_or(0.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of rows")]
    let count = value.ceil() as u64;
    count
}

/// Each file of statements is either measured here, or somebody has said why it need not be.
#[test]
fn every_statement_is_measured_or_said_to_be_small() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/sql");
    let mut findings = Vec::new();
    let mut files = 0;
    for entry in std::fs::read_dir(folder).expect("the statements' folder") {
        let name = entry.expect("an entry").file_name().into_string().expect("a name");
        files += 1;
        let is_measured = cases::all().iter().any(|case| case.file == name);
        let lists = [cases::SMALL, cases::OPEN];
        let named = lists.iter().map(|list| list.iter().filter(|(file, _)| *file == name).count());
        if usize::from(is_measured) + named.sum::<usize>() != 1 {
            findings.push(name);
        }
    }
    assert!(files > 20, "the statements are found");
    findings.sort();
    assert!(
        findings.is_empty(),
        "not exactly one of a case, a line of SMALL and a line of OPEN: {findings:?}"
    );
}
