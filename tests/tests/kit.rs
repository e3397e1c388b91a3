//! The test kit itself: what the other tests stand on.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use undolog_tests::SOON;
use undolog_tests::pg::{PrivateCluster, TestDb};
use undolog_tests::witness::{Act, Script, Witness};

type Now = DateTime<Utc>;

async fn tables(db: &TestDb) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM pg_class WHERE relname = 'undolog_sessions'")
        .fetch_one(db.pool())
        .await
        .expect("an answer")
}

async fn count(sql: &str, db: &TestDb) -> i64 {
    sqlx::query_scalar(sql).fetch_one(db.pool()).await.expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_test_has_a_migrated_database_of_its_own() {
    let (one, two) = tokio::join!(TestDb::new(), TestDb::new());
    assert_ne!(one.name(), two.name());
    assert_eq!(tables(&one).await, 1);
    sqlx::query("CREATE TABLE mine ()").execute(one.pool()).await.unwrap();
    let foreign = "SELECT count(*) FROM pg_class WHERE relname = 'mine'";
    assert_eq!((count(foreign, &one).await, count(foreign, &two).await), (1, 0));
    assert_eq!(tables(&TestDb::empty().await).await, 0);

    let gone = one.name().to_owned();
    drop(one);
    let sql = format!("SELECT count(*) FROM pg_database WHERE datname = '{gone}'");
    assert_eq!(count(&sql, &two).await, 0, "the database outlived its test");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clock_moves_in_backends_that_run_and_timeouts_stay_real() {
    let server = PrivateCluster::start().await;
    let mut conn = PgConnection::connect(&server.url()).await.unwrap();
    let now = "SELECT clock_timestamp()";
    let before: Now = sqlx::query_scalar(now).fetch_one(&mut conn).await.unwrap();
    server.clock().advance(Duration::from_secs(86_400 * 40));
    let after: Now = sqlx::query_scalar(now).fetch_one(&mut conn).await.unwrap();
    assert!(after - before >= chrono::Duration::days(40), "{before} → {after}");
    assert!(after - before < chrono::Duration::days(41), "{before} → {after}");

    let last_moment: Now = "2027-03-31T23:59:59.5Z".parse().unwrap();
    server.set_clock(last_moment).await;
    let sql = "SELECT now() - $1 BETWEEN '-1 s' AND '20 s'";
    let there: bool = sqlx::query_scalar(sql).bind(last_moment).fetch_one(&mut conn).await.unwrap();
    assert!(there, "the clock was not set");

    sqlx::raw_sql("SET statement_timeout = '300ms'").execute(&mut conn).await.unwrap();
    let started = Instant::now();
    let error = sqlx::raw_sql("SELECT pg_sleep(30)").execute(&mut conn).await.unwrap_err();
    assert!(error.to_string().contains("statement timeout"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(20), "the server's timeout did not fire");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_private_server_survives_a_crash_with_its_clock() {
    let mut server = PrivateCluster::start().await;
    server.clock().advance(Duration::from_secs(3600));
    sqlx::query("CREATE TABLE kept AS SELECT 1 AS n").execute(server.pool()).await.unwrap();
    let before: Now =
        sqlx::query_scalar("SELECT clock_timestamp()").fetch_one(server.pool()).await.unwrap();
    server.crash_and_restart().await;
    let (n, after): (i32, Now) = undolog_tests::eventually("the server is back", || async {
        sqlx::query_as("SELECT n, clock_timestamp() FROM kept").fetch_one(server.pool()).await
    })
    .await;
    assert_eq!(n, 1);
    assert!(after > before, "the clock went back from {before} to {after}");
}

fn client() -> reqwest::Client {
    let builder = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
    builder.timeout(Duration::from_secs(20)).build().expect("a client")
}

async fn post(witness: &Witness, path: &str, key: &str, body: &Value) -> Option<(u16, String)> {
    let request = client().post(witness.url(path)).header("Idempotency-Key", key);
    let response = request.body(body.to_string()).send().await.ok()?;
    let status = response.status().as_u16();
    Some((status, response.text().await.ok()?))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_witness_records_and_undoes() {
    let witness = Witness::start().await;
    let (status, made) = post(&witness, "/do/charge", "a", &json!({"amount": 7})).await.unwrap();
    assert_eq!(status, 200);
    let made: Value = serde_json::from_str(&made).unwrap();
    assert_eq!(witness.objects()["charge"]["charge-1"], json!({"amount": 7}));
    let undo = format!("/undo/charge/{}", made["id"].as_str().unwrap());
    assert_eq!(post(&witness, &undo, "b", &json!({})).await.unwrap().0, 200);
    assert!(witness.objects().is_empty());
    let calls = witness.wait_for("/", 2, SOON).await;
    assert_eq!(calls[0].key(), Some("a"));
    assert_eq!(calls[1].last_segment(), "charge-1");
    assert_eq!(calls[1].status, Some(200));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_witness_misbehaves_as_scripted() {
    let witness = Witness::start().await;
    let body = json!({});
    witness.script(Script::times("/do/x", 2, Act::Status(500)));
    for expected in [500, 500, 200] {
        assert_eq!(post(&witness, "/do/x", "k", &body).await.unwrap().0, expected);
    }
    witness.script(Script::once("/do/x", Act::Close));
    assert_eq!(post(&witness, "/do/x", "l", &body).await, None);
    witness.script(Script::once("/do/y", Act::AppliedThenClose));
    assert_eq!(post(&witness, "/do/y", "m", &body).await, None);
    assert!(witness.objects()["y"].contains_key("y-1"), "the lost answer's call was not applied");
    assert_eq!(post(&witness, "/do/y", "m", &body).await.unwrap().0, 200);
    assert_eq!(witness.objects()["y"].len(), 1, "the same key was applied twice");
    witness.script(Script::once("/do/x", Act::Redirect("http://127.0.0.1:1/".into())));
    assert_eq!(post(&witness, "/do/x", "n", &body).await.unwrap().0, 302);
    witness.script(Script::once("/do/x", Act::Trickle(Duration::from_millis(1))));
    assert!(post(&witness, "/do/x", "o", &body).await.unwrap().1.contains("x-2"));
    witness.script(Script::once("/do/x", Act::Huge(400, 100_000)));
    assert_eq!(post(&witness, "/do/x", "p", &body).await.unwrap().1.len(), 100_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_call_waits_for_the_gate() {
    let witness = Witness::start().await;
    let gate = witness.hold("/undo/");
    let call = post(&witness, "/undo/x", "k", &Value::Null);
    tokio::pin!(call);
    tokio::select! {
        answer = &mut call => panic!("answered while held: {answer:?}"),
        calls = witness.wait_for("/undo/", 1, SOON) => {
            assert_eq!(calls[0].status, None);
        }
    }
    gate.open();
    assert_eq!(call.await.unwrap().0, 404);
}
