//! Versions under names that others registered.

use serde_json::json;
use undolog_proto::v1::{self, intercept_response::Outcome};
use uuid::Uuid;

use crate::bench::{Bench, ask, call, reason, tool};

fn wire(version: &str) -> v1::Tool {
    v1::Tool {
        tool_version: version.into(),
        irreversibility_reason: "money leaves".into(),
        ..tool("wire", "irreversible")
    }
}

/// What an administrator said of `wire`.
fn strict() -> v1::Tool {
    v1::Tool {
        risk_tags: vec!["financial".into()],
        approval_timeout_seconds: 86_400,
        approval_quorum: 2,
        requester_may_approve: Some(false),
        tool_schema: json!({"properties": {"amount": {"maximum": 1_000}}}).to_string().into_bytes(),
        ..wire("1.0.0")
    }
}

#[derive(Debug, PartialEq, sqlx::FromRow)]
struct Asked {
    tool_version: String,
    irreversibility_reason: String,
    risk_tags: Vec<String>,
    auto_approve_on_timeout: bool,
    quorum: i32,
    requester_may_approve: bool,
    window_seconds: i64,
}

async fn asked(bench: &Bench, approval_id: &str) -> Asked {
    sqlx::query_as(
        "SELECT e.tool_version, a.irreversibility_reason, a.risk_tags, a.auto_approve_on_timeout, \
         a.quorum, a.requester_may_approve, \
         extract(epoch FROM a.timeout_at - a.created_at)::bigint AS window_seconds \
         FROM undolog_approval_requests a JOIN undolog_effect_log e \
           ON e.approval_request_id = a.approval_request_id \
         WHERE a.approval_request_id = $1::text::uuid",
    )
    .bind(approval_id)
    .fetch_one(bench.db.pool())
    .await
    .expect("the request")
}

async fn approval(outcome: Result<Outcome, tonic::Status>) -> String {
    match outcome.expect("asked") {
        Outcome::AwaitingApproval(asked) => asked.approval_id,
        other => panic!("expected an approval, got {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_version_of_anothers_tool_waits_for_an_administrator() {
    let bench = Bench::start().await;
    let (admin, agent) = (bench.admin().await, bench.agent().await);
    let org = bench.org.id;
    sqlx::query(
        "UPDATE undolog_orgs SET auto_approve_on_timeout = true, \
         never_auto_approve_tags = '{financial}' WHERE org_id = $1",
    )
    .bind(org)
    .execute(bench.db.pool())
    .await
    .expect("the policy");
    bench.tool(&admin, strict()).await.expect("the administrator's");
    let weaker = |version: &str| v1::Tool {
        irreversibility_reason: "reads a balance".into(),
        approval_quorum: 2,
        requester_may_approve: Some(false),
        ..wire(version)
    };
    for version in ["99.0.0", "18446744073709551615.0.0", "0.0.1", "1.0.1-rc.1"] {
        let made = bench.tool(&agent, weaker(version)).await.expect("stored");
        let made = made.tool.expect("a tool");
        assert!(!made.is_active, "{version} is in use");
        let mut named = call(Uuid::new_v4(), 1, "wire", &json!({"amount": 5}));
        named.tool_call.as_mut().expect("a call").tool_version = version.into();
        assert_eq!(reason(ask(&agent, named).await), "TOOL_NOT_REGISTERED");
    }
    let over = ask(&agent, call(Uuid::new_v4(), 1, "wire", &json!({"amount": 5_000_000}))).await;
    assert_eq!(reason(over), "ARGS_INVALID", "the administrator's schema");
    let id = approval(ask(&agent, call(Uuid::new_v4(), 1, "wire", &json!({"amount": 5}))).await);
    let expected = Asked {
        tool_version: "1.0.0".into(),
        irreversibility_reason: "money leaves".into(),
        risk_tags: vec!["financial".into()],
        auto_approve_on_timeout: false,
        quorum: 2,
        requester_may_approve: false,
        window_seconds: 86_400,
    };
    assert_eq!(asked(&bench, &id.await).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_strictest_of_all_versions_decides() {
    let bench = Bench::start().await;
    let (admin, agent) = (bench.admin().await, bench.agent().await);
    bench.tool(&admin, strict()).await.expect("1.0.0");
    let newer = v1::Tool {
        risk_tags: vec!["bulk".into()],
        auto_approve_on_timeout: Some(true),
        approval_timeout_seconds: 60,
        ..wire("2.0.0")
    };
    bench.tool(&admin, newer).await.expect("2.0.0");
    let id = approval(ask(&agent, call(Uuid::new_v4(), 1, "wire", &json!({"amount": 5}))).await);
    let mut found = asked(&bench, &id.await).await;
    found.risk_tags.sort_unstable();
    let expected = Asked {
        tool_version: "2.0.0".into(),
        irreversibility_reason: "money leaves".into(),
        risk_tags: vec!["bulk".into(), "financial".into()],
        auto_approve_on_timeout: false,
        quorum: 2,
        requester_may_approve: false,
        window_seconds: 86_400,
    };
    assert_eq!(found, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_wholly_ones_own_gets_new_versions_at_once() {
    let bench = Bench::start().await;
    let (agent, other) = (bench.agent().await, bench.client("agent", "agent-2").await);
    bench.tool(&agent, wire("1.0.0")).await.expect("1.0.0");
    let newer = bench.tool(&agent, wire("2.0.0")).await.expect("2.0.0").tool.expect("a tool");
    assert!(newer.is_active);
    let theirs = bench.tool(&other, wire("3.0.0")).await.expect("3.0.0").tool.expect("a tool");
    assert!(!theirs.is_active);
    // From here on the name is not wholly anybody's.
    let mixed = bench.tool(&agent, wire("4.0.0")).await.expect("4.0.0").tool.expect("a tool");
    assert!(!mixed.is_active);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_fills_no_registry() {
    let bench = Bench::start().await;
    let (admin, agent) = (bench.admin().await, bench.agent().await);
    for n in 0..100 {
        bench.tool(&agent, wire(&format!("1.0.{n}"))).await.expect("within the quota");
    }
    let over = bench.tool(&agent, wire("1.0.100")).await;
    assert_eq!(reason(over), "LIMIT_EXCEEDED");
    let mut refused = None;
    for n in 0..300 {
        let other = v1::Tool { tool_name: format!("t{n}"), ..wire("1.0.0") };
        if let Err(status) = bench.tool(&agent, other).await {
            refused = Some(reason::<()>(Err(status)));
            break;
        }
    }
    assert_eq!(refused.as_deref(), Some("RATE_LIMITED"));
    bench.tool(&admin, wire("2.0.0")).await.expect("an administrator goes on");
}
