//! Limits and faults: a clear code, nothing of the inside, and no row.

use std::time::Duration;

use serde_json::json;
use sqlx::Connection as _;
use tonic::{Code, Request};
use tonic_types::StatusExt as _;
use undolog_core::limits;
use undolog_proto::v1;
use undolog_tests::world::Client;
use uuid::Uuid;

use super::bench::{Bench, ask, call, commit, grant, reason};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_is_refused_without_a_row() {
    let bench = Bench::start().await;
    let admin = bench.admin().await;
    bench.tools(&admin).await;
    let agent = bench.agent().await;
    let session = Uuid::new_v4();
    let large = json!({"text": "x".repeat(limits::ARGS_BYTES_MAX)});
    assert_eq!(reason(ask(&agent, call(session, 1, "pay", &large)).await), "LIMIT_EXCEEDED");
    let huge = json!({"text": "x".repeat(11 * 1024 * 1024)});
    let key = bench.org.key(bench.db.pool(), "agent", "agent-1").await;
    let wide = Client::new(&bench.url, Some(&key));
    let mut engine = wide.engine().max_encoding_message_size(64 * 1024 * 1024);
    let answer = engine.intercept(call(session, 1, "pay", &huge)).await;
    assert_eq!(answer.expect_err("a refusal").code(), Code::OutOfRange);
    let effects: i64 = sqlx::query_scalar("SELECT count(*) FROM undolog_effect_log")
        .fetch_one(bench.db.pool())
        .await
        .expect("count");
    assert_eq!(effects, 0);
    // Just inside the limit works, and comes back whole.
    let fits = json!({"text": "x".repeat(limits::ARGS_BYTES_MAX - 20)});
    let effect = grant(&agent, call(session, 1, "pay", &fits)).await;
    commit(&agent, session, &effect, &fits).await.expect("commit");
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_requests_are_invalid() {
    let bench = Bench::start().await;
    let admin = bench.admin().await;
    bench.tools(&admin).await;
    let agent = bench.agent().await;
    let empty = v1::InterceptRequest::default();
    assert_eq!(reason(ask(&agent, empty).await), "INVALID_ARGUMENT");
    let mut request = call(Uuid::new_v4(), 1, "pay", &json!({}));
    request.tool_call.as_mut().expect("a call").session_id = "mine".into();
    assert_eq!(reason(ask(&agent, request).await), "INVALID_ARGUMENT");
    let mut request = call(Uuid::new_v4(), 1, "pay", &json!({}));
    request.step_key = "call-1".into();
    assert_eq!(reason(ask(&agent, request).await), "STEP_INVALID");
    let fail = v1::FailRequest {
        effect_id: Uuid::now_v7().to_string(),
        session_id: Uuid::new_v4().to_string(),
        effect: 99,
        ..Default::default()
    };
    assert_eq!(reason(agent.engine().fail(fail).await), "INVALID_ARGUMENT");
    // A SAFE tool has no effect: its reports are fine.
    let session_id = Uuid::new_v4().to_string();
    let commit = v1::CommitRequest { session_id: session_id.clone(), ..Default::default() };
    agent.engine().commit(commit).await.expect("nothing to record");
    let fail = v1::FailRequest { session_id, ..Default::default() };
    agent.engine().fail(fail).await.expect("nothing to record");
}

/// Opens or shuts the database to new connections; those that exist stay.
async fn allow_connections(bench: &Bench, allowed: bool) {
    let url = bench.db.url().replace(bench.db.name(), "postgres");
    let mut admin = sqlx::PgConnection::connect(&url).await.expect("connect as superuser");
    let sql = format!("ALTER DATABASE {} ALLOW_CONNECTIONS {allowed}", bench.db.name());
    sqlx::query(&sql).execute(&mut admin).await.expect("open or shut the door");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_that_is_away_is_unavailable_and_tells_no_sql() {
    let bench = Bench::start_with(|options| options.store.acquire_timeout_ms = 500).await;
    let admin = bench.admin().await;
    bench.tools(&admin).await;
    let agent = bench.agent().await;
    let session = Uuid::new_v4();
    grant(&agent, call(session, 1, "pay", &json!({}))).await;
    allow_connections(&bench, false).await;
    sqlx::query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE datname = current_database() AND application_name = 'engine under test'",
    )
    .execute(bench.db.pool())
    .await
    .expect("cut the lines");
    for step in 2..6 {
        let status = ask(&agent, call(session, step, "pay", &json!({}))).await.expect_err("away");
        let text = format!("{status:?}").to_lowercase();
        assert!(!text.contains("select") && !text.contains("undolog_"), "{text}");
        let details = status.get_error_details();
        let info = details.error_info().expect("an ErrorInfo");
        assert_eq!(info.reason, "UNAVAILABLE");
        assert!(details.retry_info().is_some_and(|retry| retry.retry_delay.is_some()));
    }
    allow_connections(&bench, true).await;
    undolog_tests::eventually("the engine works again", || async {
        ask(&agent, call(session, 9, "pay", &json!({})))
            .await
            .map(|_| ())
            .map_err(|s| s.to_string())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callers_deadline_is_kept() {
    let bench = Bench::start().await;
    let admin = bench.admin().await;
    bench.tools(&admin).await;
    let agent = bench.agent().await;
    let session = Uuid::new_v4();
    grant(&agent, call(session, 1, "pay", &json!({}))).await;
    // Somebody holds the session's lock: the step waits, its caller does not for ever.
    let mut holder = bench.db.pool().begin().await.expect("begin");
    sqlx::query("SELECT 1 FROM undolog_sessions WHERE session_id = $1 FOR UPDATE")
        .bind(session)
        .execute(&mut *holder)
        .await
        .expect("hold");
    let mut request = Request::new(call(session, 2, "pay", &json!({})));
    request.metadata_mut().insert("grpc-timeout", "300m".parse().expect("a timeout"));
    let status = agent.engine().intercept(request).await.expect_err("too late");
    // The client's own clock may be the first to say so.
    let code = status.code();
    assert!(matches!(code, Code::DeadlineExceeded | Code::Cancelled), "{status:?}");
    holder.rollback().await.expect("let go");
    // The step was recorded in whole or not at all; asking again gives one clear answer.
    let again = async || ask(&agent, call(session, 2, "pay", &json!({}))).await;
    let answer = tokio::time::timeout(Duration::from_secs(20), again()).await.expect("an answer");
    assert!(answer.is_ok() || reason(answer) == "IN_PROGRESS");
}
