//! What a compensation is called with, and how often.

use serde_json::{Value, json};
use undolog_proto::v1::{self, CompensationDescriptor, InterceptRequest};
use uuid::Uuid;

use crate::bench::{Bench, ask, call, grant, reason, tool};

fn create_user(args: Option<Value>, caller_args: bool) -> v1::Tool {
    v1::Tool {
        compensation_ref: "delete_user".into(),
        compensation_args: args.map(|args| args.to_string().into_bytes()).unwrap_or_default(),
        caller_args,
        ..tool("create_user", "compensable")
    }
}

fn naming(args: &Value) -> InterceptRequest {
    let mut request = call(Uuid::new_v4(), 1, "create_user", &json!({"name": "eve"}));
    request.compensation = Some(CompensationDescriptor {
        fn_name: "delete_user".into(),
        args: args.to_string().into_bytes(),
        max_retries: Some(100),
        retry_backoff_ms: Some(0),
        ..CompensationDescriptor::default()
    });
    request
}

async fn entry(bench: &Bench) -> (String, i32, i32) {
    sqlx::query_as(
        "SELECT compensation_args::text, max_retries, retry_backoff_ms FROM undolog_undo_stack \
         ORDER BY registered_at DESC LIMIT 1",
    )
    .fetch_one(bench.db.pool())
    .await
    .expect("an entry")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_registration_says_what_an_undo_is_called_with() {
    let bench = Bench::start().await;
    let (admin, agent) = (bench.admin().await, bench.agent().await);
    bench.compensation(&admin, "delete_user", true).await.expect("the compensation");
    let template = json!({"id": "{result.id}", "name": "{args.name}"});
    bench.tool(&admin, create_user(Some(template.clone()), false)).await.expect("the tool");
    let forged = naming(&json!({"id": "the-ceo"}));
    assert_eq!(reason(ask(&agent, forged).await), "COMPENSATION_REFUSED");
    let sessions: i64 = sqlx::query_scalar("SELECT count(*) FROM undolog_sessions")
        .fetch_one(bench.db.pool())
        .await
        .expect("a count");
    assert_eq!(sessions, 0, "nothing is written");
    grant(&agent, naming(&template)).await;
    assert_eq!(entry(&bench).await.0, r#"{"id": "{result.id}", "name": "eve"}"#);
    grant(&agent, naming(&json!({}))).await;
    assert_eq!(entry(&bench).await.0, r#"{"id": "{result.id}", "name": "eve"}"#);
    grant(&agent, call(Uuid::new_v4(), 1, "create_user", &json!({"name": "mallory"}))).await;
    assert_eq!(entry(&bench).await.0, r#"{"id": "{result.id}", "name": "mallory"}"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_name_arguments_only_where_they_may() {
    let bench = Bench::start().await;
    let (admin, agent) = (bench.admin().await, bench.agent().await);
    bench.compensation(&admin, "delete_user", true).await.expect("the compensation");
    bench.tool(&admin, create_user(None, false)).await.expect("the tool");
    let named = naming(&json!({"id": "7"}));
    assert_eq!(reason(ask(&agent, named.clone()).await), "COMPENSATION_REFUSED");
    bench.tool(&admin, create_user(None, true)).await.expect("left to callers");
    grant(&agent, named).await;
    assert_eq!(entry(&bench).await.0, r#"{"id": "7"}"#);
    for bad in [json!([1]), json!({"a": "{"})] {
        let made = bench.tool(&admin, create_user(Some(bad), false)).await;
        assert_eq!(reason(made), "INVALID_ARGUMENT");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_is_called_no_more_often_than_is_registered() {
    let bench = Bench::start().await;
    let (admin, agent) = (bench.admin().await, bench.agent().await);
    bench.compensation(&admin, "delete_user", true).await.expect("the compensation");
    bench.tool(&admin, create_user(None, true)).await.expect("the tool");
    grant(&agent, naming(&json!({"id": "7"}))).await;
    let (_, retries, backoff_ms) = entry(&bench).await;
    assert_eq!((retries, backoff_ms), (3, 1_000), "the registration's");
    let mut fewer = naming(&json!({"id": "7"}));
    let descriptor = fewer.compensation.as_mut().expect("a descriptor");
    (descriptor.max_retries, descriptor.retry_backoff_ms) = (Some(1), Some(5_000));
    grant(&agent, fewer).await;
    let (_, retries, backoff_ms) = entry(&bench).await;
    assert_eq!((retries, backoff_ms), (1, 5_000), "fewer and later is free");
}
