//! Webhooks: signed, tried again under one id, and in nobody's way.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, Mac as _};
use serde_json::json;
use sha2::Sha256;
use undolog_proto::v1::intercept_response::Outcome;
use undolog_tests::run::{EngineOptions, WorkerOptions};
use undolog_tests::witness::{Act, Call, Script};
use undolog_tests::world::ToolSpec;
use undolog_tests::{SOON, World, within};

const KEY: &[u8] = b"thirty-two bytes of no secret...";

/// A world whose organisation is told at `path` of the witness.
async fn world(path: &str) -> World {
    world_with(path, "").await
}

/// The same with a worker that ends at a crash point.
async fn world_with(path: &str, crash_at: &str) -> World {
    let mut world = World::without_servers().await;
    world.add_engine(EngineOptions::default()).await;
    let secret = format!("whsec_{}", STANDARD.encode(KEY));
    let environment = vec![
        ("UNDOLOG_SHARED_SECRET_HOOK".to_owned(), secret),
        ("UNDOLOG_CRASH_AT".to_owned(), crash_at.to_owned()),
    ];
    world.add_worker(WorkerOptions { environment, ..WorkerOptions::default() }).await;
    let url = if path.starts_with('/') { world.witness.url(path) } else { path.to_owned() };
    world.org.set(world.pool(), "webhook_secret", "HOOK").await;
    world.org.set(world.pool(), "webhook_url", &url).await;
    world.tool(ToolSpec::irreversible("wipe")).await;
    world.tool(ToolSpec::compensable("charge")).await;
    world
}

/// The signature that the receiver computes for itself.
fn expected(call: &Call) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(KEY).unwrap();
    let (id, at) = (call.header("webhook-id").unwrap(), call.header("webhook-timestamp").unwrap());
    mac.update(format!("{id}.{at}.").as_bytes());
    mac.update(&call.body);
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_hears_of_a_request_again_until_it_takes_it() {
    let world = world("/do/hook").await;
    world.witness.script(Script::once("/do/hook", Act::Status(500)));
    let mut agent = world.agent().await;
    let request = agent.request("wipe", &json!({"password": "hunter2"}));
    let Ok(Outcome::AwaitingApproval(asked)) = agent.ask(request).await else {
        panic!("it was not asked for")
    };
    let calls = world.witness.wait_for("/do/hook", 2, SOON).await;
    for call in &calls {
        assert_eq!(call.header("webhook-signature"), Some(expected(call).as_str()));
        assert_eq!(call.header("webhook-id"), calls[0].header("webhook-id"), "another id");
        let body = call.json();
        assert_eq!(body["kind"], "approval_requested");
        assert_eq!(body["subject_id"], asked.approval_id);
        assert_eq!(body["tool_name"], "wipe");
        assert!(!String::from_utf8_lossy(&call.body).contains("hunter2"), "an argument was told");
    }
    assert!(calls[1].at - calls[0].at >= Duration::from_secs(5), "the backoff was not kept");
    let states = "SELECT state || attempts FROM undolog_notifications";
    within(SOON, "it is written down", || async {
        let state: String = sqlx::query_scalar(states).fetch_one(world.pool()).await.unwrap();
        if state == "sent2" { Ok(()) } else { Err(state) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_hangs_is_in_nobodys_way() {
    let world = world("/do/hook").await;
    world.witness.script(Script::always("/do/hook", Act::Hang));
    let mut waiting = world.agent().await;
    for n in 0..20 {
        let request = waiting.request("wipe", &json!({"n": n}));
        assert!(matches!(waiting.ask(request).await, Ok(Outcome::AwaitingApproval(_))));
    }
    world.witness.wait_for("/do/hook", 1, SOON).await;
    let mut agent = world.agent().await;
    agent.call("charge", &json!({"n": 1})).await;
    agent.rollback().await.unwrap();
    agent.wait_state("compensated", SOON).await;
    world.rollback_check(agent.session).await;
    let hooks = world.witness.calls_to("/do/hook");
    assert!(hooks.iter().all(|call| call.status.is_none()), "none was answered");
    assert!(hooks.len() <= 4, "{} are on their way at once", hooks.len());
    let pending = "SELECT count(*) FROM undolog_approval_requests WHERE state = 'pending'";
    let pending: i64 = sqlx::query_scalar(pending).fetch_one(world.pool()).await.unwrap();
    assert_eq!(pending, 20, "a notification decided something");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_private_address_is_not_called() {
    let world = world("http://10.255.255.1/hook").await;
    let mut agent = world.agent().await;
    let request = agent.request("wipe", &json!({}));
    agent.ask(request).await.unwrap();
    let error = "SELECT last_error FROM undolog_notifications WHERE attempts = 1 \
        AND state = 'pending' AND last_error IS NOT NULL";
    let error = within(SOON, "the refusal is written down", || async {
        let found: Option<String> =
            sqlx::query_scalar(error).fetch_optional(world.pool()).await.unwrap();
        found.ok_or("nothing yet")
    })
    .await;
    assert!(error.contains("not allowed"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_dies_after_sending_sends_again_under_the_same_id() {
    let mut world = world_with("/do/hook", "notify.after_send").await;
    let mut agent = world.agent().await;
    let request = agent.request("wipe", &json!({}));
    agent.ask(request).await.unwrap();
    world.workers[0].process.wait_exit(SOON).await;
    assert_eq!(world.witness.calls_to("/do/hook").len(), 1);
    let secret = format!("whsec_{}", STANDARD.encode(KEY));
    let environment = vec![("UNDOLOG_SHARED_SECRET_HOOK".to_owned(), secret)];
    world.add_worker(WorkerOptions { environment, ..WorkerOptions::default() }).await;
    let over = "UPDATE undolog_notifications SET lease_expires_at = now() - interval '1 second' \
        WHERE lease_expires_at IS NOT NULL";
    sqlx::raw_sql(over).execute(world.pool()).await.unwrap();
    let calls = world.witness.wait_for("/do/hook", 2, SOON).await;
    assert_eq!(calls[0].header("webhook-id"), calls[1].header("webhook-id"));
}
