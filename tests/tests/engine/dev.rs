//! Development mode, probes, and the end of an engine.

use std::net::SocketAddr;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use undolog_engine::EngineError;
use undolog_proto::v1;
use undolog_tests::{
    eventually,
    pg::TestDb,
    world::{Client, Org},
};
use uuid::Uuid;

use super::bench::{Bench, call, dev_mode, grant, options, reason, tool};

async fn dev_bench() -> Bench {
    let db = TestDb::new().await;
    let org = Org::create(db.pool(), "acme").await;
    let mut options = options(&db);
    options.dev = Some(dev_mode(&db));
    Bench::on(db, org, options).await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_key_the_named_organisation_is_made() {
    let bench = dev_bench().await;
    let client = Client::new(&bench.url, None);
    bench.tools(&client).await;
    grant(&client, call(Uuid::new_v4(), 1, "pay", &json!({}))).await;
    let register = |org_id: &str| {
        let request =
            v1::RegisterToolRequest { org_id: org_id.to_owned(), tool: Some(tool("look", "safe")) };
        let mut registry = client.registry();
        async move { registry.register_tool(request).await }
    };
    register("brand-new").await.expect("a new organisation");
    register("brand-new").await.expect("the same one");
    register(&bench.org.id.to_string()).await.expect("an existing one by its id");
    assert_eq!(reason(register("Not A Slug").await), "INVALID_ARGUMENT");
    assert_eq!(reason(register(&Uuid::new_v4().to_string()).await), "ORG_NOT_FOUND");
    let slugs: Vec<String> = sqlx::query_scalar("SELECT slug FROM undolog_orgs ORDER BY slug")
        .fetch_all(bench.db.pool())
        .await
        .expect("the organisations");
    assert_eq!(slugs, ["acme", "brand-new", "dev"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_development_a_key_still_counts() {
    let bench = dev_bench().await;
    let wrong = Client::new(&bench.url, Some(&format!("ulk_{}", "0".repeat(48))));
    let answer = wrong.registry().list_tools(v1::ListToolsRequest::default()).await;
    assert_eq!(reason(answer), "UNAUTHENTICATED");
    let approver = bench.client("approver", "ann").await;
    assert_eq!(reason(bench.tool(&approver, tool("t", "safe")).await), "PERMISSION_DENIED");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_keys_only_loopback_is_served() {
    let db = TestDb::new().await;
    let mut options = options(&db);
    options.dev = Some(dev_mode(&db));
    options.listen = SocketAddr::from(([0, 0, 0, 0], 0));
    let refused = undolog_engine::serve(options, CancellationToken::new()).await;
    assert!(matches!(refused, Err(EngineError::DevNotOnLoopback(_))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_may_too_much_does_not_serve() {
    let db = TestDb::new().await;
    let mut options = options(&db);
    options.store.role = None;
    let refused = undolog_engine::serve(options, CancellationToken::new()).await;
    assert!(matches!(refused, Err(EngineError::Catalog(_))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_answer_and_a_shutdown_drains() {
    let mut bench = Bench::start().await;
    let get = |path: &'static str| {
        let url = format!("http://{}{path}", bench.http);
        async move {
            let answer = undolog_tests::http_get(url).await.expect("an answer");
            (answer.status().as_u16(), answer.text().await.expect("a text"))
        }
    };
    assert_eq!(get("/health").await.0, 200);
    assert_eq!(get("/ready").await.0, 200);
    let admin = bench.admin().await;
    admin.registry().list_tools(v1::ListToolsRequest::default()).await.expect("a list");
    let (code, text) = get("/metrics").await;
    assert_eq!(code, 200);
    for name in ["undolog_rpc_total", "undolog_rpc_duration_seconds", "undolog_pool_connections"] {
        assert!(text.contains(name), "{name} is missing");
    }
    let ticks: i64 = sqlx::query_scalar("SELECT count(*) FROM undolog_service")
        .fetch_one(bench.db.pool())
        .await
        .expect("ticks");
    assert_eq!(ticks, 1, "an engine ticks before it serves");
    // A follower does not hold the engine up.
    let request = v1::WatchEventsRequest { follow: true, ..Default::default() };
    let mut following = admin.sessions().watch_events(request).await.expect("follow").into_inner();
    bench.shutdown.cancel();
    while let Ok(Some(_)) = following.message().await {}
    bench.running.take().expect("running").stopped().await.expect("stopped in time");
    eventually("nothing is left", || async {
        match admin.registry().list_tools(v1::ListToolsRequest::default()).await {
            Err(_) => Ok(()),
            Ok(_) => Err("it still answers"),
        }
    })
    .await;
}
