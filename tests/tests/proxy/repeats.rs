//! What a proxy asks again when the engine is away, and what it must not.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use http_body_util::Empty;
use hyper::{Request, Response, body::Bytes, body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use reqwest::Method;
use serde_json::{Value, json};
use undolog_tests::run::{Proxy, ProxyOptions};

use super::bench::Http;

/// How often each RPC was asked for.
type Asked = Arc<Mutex<HashMap<String, usize>>>;

/// An engine that knows nobody and answers everything else with UNAVAILABLE: whether a call was
/// recorded, nobody can tell from that.
async fn engine_away() -> (String, Asked) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Asked::default();
    let counts = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let counts = Arc::clone(&counts);
            let service = service_fn(move |request: Request<Incoming>| {
                let rpc = request.uri().path().trim_start_matches("/undolog.v1.").to_owned();
                // A tick without a key is refused: for the proxy that is an engine that is there.
                let status = match rpc.as_str() {
                    "UndoLogProxy/Tick" => "16",
                    // An older engine, which knows nothing of them.
                    "UndoLogProxy/Authenticate" | "/grpc.health.v1.Health/Check" => "12",
                    _ => "14",
                };
                *counts.lock().unwrap().entry(rpc).or_default() += 1;
                let response = Response::builder()
                    .header("content-type", "application/grpc")
                    .header("grpc-status", status)
                    .body(Empty::<Bytes>::new());
                async move { response }
            });
            tokio::spawn(
                hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(connection), service),
            );
        }
    });
    (url, asked)
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_does_the_same_twice_is_asked_again() {
    let (engine, asked) = engine_away().await;
    let proxy = Proxy::start(&engine, ProxyOptions::default()).await;
    let client = Http::new(&proxy.url(""), Some("ulk_key".to_owned()));
    let session = "018f0000-0000-7000-8000-000000000001";
    let report = |attempt: u32| {
        json!({"session_id": session, "attempt": attempt, "result": {
        "success": true, "output": 1}, "error": "x"})
    };
    let commit = |attempt| {
        let mut body = report(attempt);
        body.as_object_mut().unwrap().remove("error");
        body
    };
    let fail = |attempt| {
        let mut body = report(attempt);
        body.as_object_mut().unwrap().remove("result");
        body
    };
    let call = json!({"session_id": session, "tool_name": "t", "step_index": 1, "args": {}});
    let tool = json!({"tier": "safe"});
    let (again, once) = (4, 1);
    let cases: Vec<(Method, &str, Value, &str, usize)> = vec![
        (Method::GET, "/sessions", Value::Null, "UndoLogSessions/List", again),
        (Method::GET, "/approvals", Value::Null, "UndoLogOperator/ListApprovals", again),
        (Method::PUT, "/tools/t", tool, "UndoLogRegistry/RegisterTool", again),
        // The proxy gives each inbound call a token of its own.
        (Method::POST, "/mcp/tool_call", call, "UndoLogEngine/Intercept", again),
        (Method::PUT, "/effects/e/commit", commit(2), "UndoLogEngine/Commit", again),
        (Method::PUT, "/effects/e/commit", commit(0), "UndoLogEngine/Commit", once),
        (Method::PUT, "/effects/e/fail", fail(2), "UndoLogEngine/Fail", again),
        (Method::PUT, "/effects/e/fail", fail(0), "UndoLogEngine/Fail", once),
        (Method::POST, "/sessions", json!({"session_id": session}), "UndoLogSessions/Begin", again),
        (Method::POST, "/sessions", json!({}), "UndoLogSessions/Begin", once),
        (Method::POST, "/approvals/a/approve", json!({}), "UndoLogEngine/Approve", once),
        (Method::POST, "/approvals/a/reject", json!({}), "UndoLogEngine/Reject", once),
        (Method::POST, "/approvals/a/revoke", json!({}), "UndoLogOperator/RevokeApproval", once),
        (Method::POST, "/queue/pause", json!({}), "UndoLogOperator/PauseQueue", once),
        (
            Method::POST,
            "/dead-letters/d/retry",
            json!({}),
            "UndoLogOperator/RetryDeadLetters",
            once,
        ),
        (Method::POST, "/sessions/s/savepoint", json!({}), "UndoLogSessions/Savepoint", once),
    ];
    for (method, path, body, rpc, tries) in cases {
        asked.lock().unwrap().clear();
        let mut request = client.request(method.clone(), path);
        if !body.is_null() {
            request = request.body(body.to_string());
        }
        client.send(request).await.refused(503, "UNAVAILABLE");
        let counted = asked.lock().unwrap().get(rpc).copied().unwrap_or_default();
        assert_eq!(counted, tries, "{method} {path} {body}");
    }
}
