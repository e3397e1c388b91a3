//! Who may call what: every RPC of the descriptor with every role, and with no key that counts.

use http::uri::PathAndQuery;
use prost::Message as _;
use serde_json::json;
use tonic::{
    Code, Request, Status,
    client::Grpc,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;
use tonic_types::StatusExt as _;
use undolog_core::role::{Role, Rpc, allows};
use undolog_proto::v1::{GetToolRequest, InterceptRequest, ListToolsRequest, WatchEventsRequest};
use undolog_tests::{SOON, eventually};
use uuid::Uuid;

use super::bench::{self, Bench, ask, grant, reason};

/// Every method of the wire as `/package.Service/Method`.
fn methods() -> Vec<String> {
    let set = prost_types::FileDescriptorSet::decode(undolog_proto::FILE_DESCRIPTOR_SET)
        .expect("our own descriptors");
    let files = set.file.iter().filter(|file| file.package() == "undolog.v1");
    let services = files.flat_map(|file| &file.service);
    let methods = services.flat_map(|service| {
        let path = |method: &prost_types::MethodDescriptorProto| {
            format!("/undolog.v1.{}/{}", service.name(), method.name())
        };
        service.method.iter().map(path).collect::<Vec<_>>()
    });
    methods.collect()
}

/// Calls a method with an empty message.
async fn call(channel: &Channel, path: &str, headers: &[(&'static str, &str)]) -> Status {
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.expect("a connection");
    let mut request = Request::new(());
    for (name, value) in headers {
        request.metadata_mut().insert(*name, value.parse().expect("a header"));
    }
    let path: PathAndQuery = path.parse().expect("a path");
    let codec = ProstCodec::<(), ()>::default();
    // Refusals of the gate come before any message, for streams too.
    match grpc.server_streaming(request, path, codec).await {
        Ok(answer) => match answer.into_inner().message().await {
            Ok(_) => Status::ok(""),
            Err(status) => status,
        },
        Err(status) => status,
    }
}

async fn channel(url: &str) -> Channel {
    Endpoint::from_shared(url.to_owned()).expect("a URL").connect().await.expect("connect")
}

#[test]
fn the_role_table_knows_every_method_and_no_other() {
    let mut ours: Vec<String> = Rpc::ALL.iter().map(|rpc| format!("/undolog.v1.{rpc}")).collect();
    let mut theirs = methods();
    ours.sort();
    theirs.sort();
    assert_eq!(ours, theirs);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_role_may_call_what_the_table_says_and_nothing_else() {
    let bench = Bench::start().await;
    let channel = channel(&bench.url).await;
    for &role in Role::ALL {
        let key = bench.org.key(bench.db.pool(), role.as_str(), "somebody").await;
        for path in methods() {
            let rpc = Rpc::from_path(&path).expect("a method of the table");
            let status = call(&channel, &path, &[("x-api-key", &key)]).await;
            let info = status.get_details_error_info();
            // The gate names the method; other refusals of a permission do not.
            let by_gate = status.code() == Code::PermissionDenied
                && info.is_some_and(|info| info.metadata.contains_key("rpc"));
            assert_eq!(by_gate, !allows(role, rpc), "{role} {path}: {status:?}");
            assert_ne!(status.code(), Code::Unauthenticated, "{role} {path}");
            assert_ne!(status.code(), Code::Internal, "{role} {path}: {status:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_key_that_counts_nothing_is_served() {
    let bench = Bench::start().await;
    let channel = channel(&bench.url).await;
    let key = bench.org.key(bench.db.pool(), "admin", "root").await;
    let unknown = format!("ulk_{}", "0".repeat(48));
    let other = bench.org.key(bench.db.pool(), "admin", "root").await;
    let bearer = format!("Bearer {unknown}");
    let presented: [&[(&'static str, &str)]; 7] = [
        &[],
        &[("x-api-key", "")],
        &[("x-api-key", "secret")],
        &[("x-api-key", &unknown)],
        &[("authorization", &bearer)],
        &[("authorization", "Basic dTpw")],
        &[("x-api-key", &key), ("authorization", &format!("Bearer {other}"))],
    ];
    // What the table does not know does not exist, whatever else is mounted.
    let known = [("x-api-key", key.as_str())];
    let status = call(&channel, "/undolog.v1.UndoLogSecrets/Read", &known).await;
    assert_eq!(status.code(), Code::Unimplemented);
    let mut paths = methods();
    paths.push("/undolog.v1.UndoLogSecrets/Read".to_owned());
    for headers in presented {
        for path in &paths {
            let status = call(&channel, path, headers).await;
            let code = status.code();
            assert!(
                code == Code::Unauthenticated || code == Code::ResourceExhausted,
                "{headers:?} {path}: {status:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bearer_token_is_a_key_too() {
    let bench = Bench::start().await;
    let key = bench.org.key(bench.db.pool(), "admin", "root").await;
    let channel = channel(&bench.url).await;
    let path = "/undolog.v1.UndoLogRegistry/ListTools";
    let bearer = format!("Bearer {key}");
    assert_eq!(call(&channel, path, &[("authorization", &bearer)]).await.code(), Code::Ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn health_and_reflection_are_open_and_nothing_else_is() {
    let bench = Bench::start().await;
    let channel = channel(&bench.url).await;
    let check = call(&channel, "/grpc.health.v1.Health/Check", &[]).await;
    assert_eq!(check.code(), Code::Ok, "{check:?}");
    let reflect = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    let status = call(&channel, reflect, &[]).await;
    assert_ne!(status.code(), Code::Unauthenticated, "{status:?}");
    let status = call(&channel, "/grpc.health.v1.Health/Steal", &[]).await;
    assert_eq!(status.code(), Code::Unauthenticated);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_key_dies_within_seconds_and_an_expired_one_never_lives() {
    let bench = Bench::start().await;
    let admin = bench.admin().await;
    let list = || async { admin.registry().list_tools(ListToolsRequest::default()).await };
    list().await.expect("the key works");
    sqlx::query("UPDATE undolog_api_keys SET revoked_at = clock_timestamp()")
        .execute(bench.db.pool())
        .await
        .expect("revoke");
    eventually("the revoked key is refused", || async {
        match list().await {
            Err(status) if status.code() == Code::Unauthenticated => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let late = bench.admin().await;
    sqlx::query("UPDATE undolog_api_keys SET expires_at = clock_timestamp() - interval '1 second'")
        .execute(bench.db.pool())
        .await
        .expect("expire");
    let answer = late.registry().list_tools(ListToolsRequest::default()).await;
    assert_eq!(reason(answer), "UNAUTHENTICATED");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_keys_cost_nobody_else_an_answer() {
    let bench = Bench::start().await;
    let channel = channel(&bench.url).await;
    let path = "/undolog.v1.UndoLogRegistry/GetTool";
    for n in 0..120 {
        let key = if n % 2 == 0 { "x".to_owned() } else { format!("ulk_{n:048x}") };
        let status = call(&channel, path, &[("x-api-key", &key)]).await;
        assert_eq!(status.code(), Code::Unauthenticated, "{status:?}");
    }
    // A key that this engine has never seen, from the same address.
    let admin = bench.admin().await;
    let request = GetToolRequest { tool_name: "none".into(), ..GetToolRequest::default() };
    let answer = admin.registry().get_tool(request).await;
    assert_eq!(answer.expect_err("there is no such tool").code(), Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_and_waits_end_with_their_key() {
    let bench = Bench::start().await;
    let admin = bench.admin().await;
    bench.tools(&admin).await;
    let agent = bench.agent().await;
    let follow = WatchEventsRequest { follow: true, ..Default::default() };
    let events = admin.sessions().watch_events(follow).await.expect("a stream");
    let mut events = events.into_inner();
    let session = Uuid::new_v4();
    grant(&agent, bench::call(session, 1, "pay", &json!({}))).await;
    // Somebody else has the grant, so the same call waits.
    let waits = InterceptRequest { wait_ms: 25_000, ..bench::call(session, 1, "pay", &json!({})) };
    let waiting = tokio::spawn(async move { ask(&agent, waits).await.map(drop) });
    let hub = bench.http;
    eventually("the call waits", || async {
        let text = undolog_tests::http_get(format!("http://{hub}/metrics")).await;
        let text = text.map_err(|error| error.to_string())?.text().await.unwrap_or_default();
        let waits = text.lines().any(|line| line == "undolog_waiting_calls 1");
        if waits { Ok(()) } else { Err("no call waits".to_owned()) }
    })
    .await;
    sqlx::query("UPDATE undolog_api_keys SET revoked_at = clock_timestamp()")
        .execute(bench.db.pool())
        .await
        .expect("revoke");
    let ended = async {
        loop {
            match events.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return Status::ok("the stream looks whole"),
                Err(status) => return status,
            }
        }
    };
    let ended = tokio::time::timeout(SOON, ended).await.expect("the stream ends");
    assert_eq!(ended.code(), Code::Unauthenticated, "{ended:?}");
    let waited = tokio::time::timeout(SOON, waiting).await.expect("the wait ends");
    let waited = waited.expect("no panic").expect_err("a revoked key is granted nothing");
    assert_eq!(waited.code(), Code::Unauthenticated, "{waited:?}");
}
