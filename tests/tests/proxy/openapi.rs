//! The document that the proxy serves of itself.

use super::bench::Bench;

/// Every route of the design.
const ROUTES: &[(&str, &str)] = &[
    ("post", "/mcp/tool_call"),
    ("put", "/effects/{id}/commit"),
    ("put", "/effects/{id}/fail"),
    ("post", "/effects/{id}/resolve"),
    ("get", "/approvals"),
    ("get", "/approvals/{id}"),
    ("post", "/approvals/{id}/approve"),
    ("post", "/approvals/{id}/reject"),
    ("post", "/approvals/{id}/revoke"),
    ("post", "/sessions"),
    ("get", "/sessions"),
    ("get", "/sessions/{id}"),
    ("get", "/sessions/{id}/effects"),
    ("get", "/sessions/{id}/replay"),
    ("post", "/sessions/{id}/heartbeat"),
    ("post", "/sessions/{id}/complete"),
    ("post", "/sessions/{id}/fail"),
    ("post", "/sessions/{id}/savepoint"),
    ("post", "/sessions/{id}/rollback"),
    ("get", "/dead-letters"),
    ("get", "/dead-letters/{id}"),
    ("post", "/dead-letters/{id}/retry"),
    ("post", "/dead-letters/{id}/skip"),
    ("post", "/dead-letters/{id}/resolve"),
    ("get", "/queue"),
    ("post", "/queue/pause"),
    ("post", "/queue/resume"),
    ("post", "/queue/close-breaker"),
    ("get", "/tools"),
    ("put", "/tools/{name}"),
    ("get", "/tools/{name}"),
    ("get", "/compensations"),
    ("put", "/compensations/{name}"),
    ("get", "/compensations/{name}"),
    ("get", "/events"),
    ("get", "/health"),
    ("get", "/ready"),
    ("get", "/metrics"),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_route_is_described_and_every_reference_leads_somewhere() {
    let bench = Bench::start().await;
    let agent = bench.agent().await;
    let answer = agent.get("/openapi.json").await.is(200);
    assert_eq!(answer.headers["content-type"], "application/json");
    assert!(answer.body["openapi"].as_str().unwrap().starts_with("3.1"));
    for (method, path) in ROUTES {
        let described = &answer.body["paths"][path][method];
        assert!(described["responses"].is_object(), "{method} {path}");
        assert!(described["summary"].is_string(), "{method} {path} has no words");
    }
    for reference in answer.text.split("\"#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        let found = &answer.body["components"]["schemas"][name];
        assert!(found.is_object(), "{name} is not described");
    }
}
