//! The registry over the wire: what agents may not do, and what everybody gets back.

use serde_json::{Value, json};
use undolog_proto::v1::{self, intercept_response::Outcome};
use undolog_tests::world::Client;
use uuid::Uuid;

use super::bench::{Bench, ask, call, grant, reason, tool};

async fn set_up() -> (Bench, Client, Client) {
    let bench = Bench::start().await;
    let admin = bench.admin().await;
    bench.tools(&admin).await;
    let agent = bench.agent().await;
    (bench, admin, agent)
}

fn compensable(name: &str, version: &str, compensation: &str) -> v1::Tool {
    v1::Tool {
        tool_version: version.into(),
        compensation_ref: compensation.into(),
        ..tool(name, "compensable")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_never_lowers_a_tier() {
    let (bench, admin, agent) = set_up().await;
    let lower = v1::Tool { tool_version: "9.0.0".into(), ..tool("pay", "safe") };
    assert_eq!(reason(bench.tool(&agent, lower.clone()).await), "TIER_LOWERED");
    let lower =
        v1::Tool { tool_version: "9.0.0".into(), ..compensable("wipe", "9.0.0", "undo_pay") };
    assert_eq!(reason(bench.tool(&agent, lower).await), "TIER_LOWERED");
    let over = v1::Tool { tool_version: "1.0.0".into(), ..tool("pay", "safe") };
    assert_ne!(reason(bench.tool(&agent, over).await), "");
    // An administrator may add a lower version, and the name keeps its highest tier all the same.
    let lower = v1::Tool { tool_version: "9.0.0".into(), ..tool("wipe", "safe") };
    bench.tool(&admin, lower).await.expect("an administrator's version");
    let asked = ask(&agent, call(Uuid::new_v4(), 1, "wipe", &json!({}))).await.expect("asked");
    assert!(matches!(asked, v1::intercept_response::Outcome::AwaitingApproval(_)), "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_binds_only_to_what_is_open() {
    let (bench, admin, agent) = set_up().await;
    bench.compensation(&admin, "closed", false).await.expect("register");
    bench.compensation(&admin, "noop", true).await.expect("register");
    let bind = |name: &'static str, version: &'static str, to: &'static str| {
        bench.tool(&agent, compensable(name, version, to))
    };
    assert_eq!(reason(bind("mail", "1.0.0", "closed").await), "COMPENSATION_REFUSED");
    assert_eq!(reason(bind("mail", "1.0.0", "nowhere").await), "COMPENSATION_NOT_FOUND");
    assert!(bind("mail", "1.0.0", "noop").await.expect("an open one").created);
    // Another one's tool keeps its binding under every version.
    assert_eq!(reason(bind("pay", "2.0.0", "noop").await), "COMPENSATION_REFUSED");
    bind("pay", "2.0.0", "undo_pay").await.expect("the same binding");
    let listed = v1::Tool {
        allowed_compensations: vec!["noop".into()],
        ..compensable("mail", "2.0.0", "noop")
    };
    assert_eq!(reason(bench.tool(&agent, listed).await), "COMPENSATION_REFUSED");
    let idempotent = v1::Tool { idempotent: true, ..compensable("mail", "2.0.0", "noop") };
    assert_eq!(reason(bench.tool(&agent, idempotent).await), "PERMISSION_DENIED");
    // An agent's own version can be changed by it; another's cannot.
    let own =
        v1::Tool { estimated_impact: "a mail".into(), ..compensable("mail", "1.0.0", "noop") };
    assert!(!bench.tool(&agent, own).await.expect("its own version").created);
    let other = bench.client("agent", "agent-2").await;
    let theirs = v1::Tool { estimated_impact: "x".into(), ..compensable("mail", "1.0.0", "noop") };
    assert_eq!(reason(bench.tool(&other, theirs).await), "REGISTRATION_CONFLICT");
}

#[tokio::test(flavor = "multi_thread")]
async fn registering_the_same_again_changes_nothing() {
    let (bench, admin, agent) = set_up().await;
    let epoch = || async {
        let sql = "SELECT registry_epoch FROM undolog_orgs WHERE org_id = $1";
        let query = sqlx::query_scalar::<_, i64>(sql).bind(bench.org.id);
        query.fetch_one(bench.db.pool()).await.expect("the epoch")
    };
    let before = epoch().await;
    // Also for an agent, which could not have made this registration.
    for client in [&admin, &agent] {
        let again = bench.tool(client, compensable("pay", "", "undo_pay")).await.expect("again");
        assert!(!again.created);
        assert_eq!(again.tool.expect("the tool").tool_version, "1.0.0");
    }
    assert!(!bench.compensation(&admin, "undo_pay", true).await.expect("again").created);
    assert_eq!(epoch().await, before);
    bench.compensation(&admin, "undo_pay", false).await.expect("changed");
    assert_eq!(epoch().await, before + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn form_is_checked_and_nothing_is_written() {
    let (bench, admin, _) = set_up().await;
    let cases: Vec<(v1::Tool, &str)> = vec![
        (tool("", "safe"), "INVALID_ARGUMENT"),
        (tool("a\0b", "safe"), "INVALID_ARGUMENT"),
        (tool(&"x".repeat(257), "safe"), "LIMIT_EXCEEDED"),
        (tool("t", "harmless"), "INVALID_ARGUMENT"),
        (tool("t", "irreversible"), "TOOL_NOT_REGISTERED"),
        (
            v1::Tool { irreversibility_reason: " \n".into(), ..tool("t", "irreversible") },
            "TOOL_NOT_REGISTERED",
        ),
        (tool("t", "compensable"), "INVALID_ARGUMENT"),
        (v1::Tool { tool_version: "1".into(), ..tool("t", "safe") }, "INVALID_ARGUMENT"),
        (v1::Tool { tool_schema: b"{".to_vec(), ..tool("t", "safe") }, "INVALID_ARGUMENT"),
        (schema(&json!({"type": "nonsense"})), "INVALID_ARGUMENT"),
        (schema(&json!({"$ref": "https://example.com/s"})), "INVALID_ARGUMENT"),
        (schema(&json!({"$ref": "#"})), "INVALID_ARGUMENT"),
        (v1::Tool { grant_lease_ms: 999, ..tool("t", "safe") }, "INVALID_ARGUMENT"),
        (
            v1::Tool { project_id: Uuid::new_v4().to_string(), ..tool("t", "safe") },
            "PROJECT_NOT_FOUND",
        ),
    ];
    for (given, expected) in cases {
        let text = format!("{given:?}");
        assert_eq!(reason(bench.tool(&admin, given).await), expected, "{text}");
    }
    let request = v1::GetToolRequest { tool_name: "t".into(), ..Default::default() };
    assert_eq!(reason(admin.registry().get_tool(request).await), "TOOL_NOT_REGISTERED");
}

fn schema(schema: &Value) -> v1::Tool {
    v1::Tool { tool_schema: schema.to_string().into_bytes(), ..tool("t", "safe") }
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_are_checked_and_a_change_is_heard_at_once() {
    let (bench, admin, agent) = set_up().await;
    let with = |rule: Value| v1::Tool {
        tool_schema: rule.to_string().into_bytes(),
        ..compensable("pay", "1.0.0", "undo_pay")
    };
    let strict = json!({"type": "object", "properties": {"amount": {"type": "integer"}},
        "required": ["amount"]});
    bench.tool(&admin, with(strict)).await.expect("a stricter schema");
    let session = Uuid::new_v4();
    let answer = ask(&agent, call(session, 1, "pay", &json!({"amount": "hunter2"}))).await;
    let status = answer.expect_err("a refusal");
    assert!(!status.message().contains("hunter2") && status.message().contains("/amount"));
    assert_eq!(reason::<()>(Err(status)), "ARGS_INVALID");
    bench.tool(&admin, with(json!({"type": "object"}))).await.expect("a looser schema");
    grant(&agent, call(session, 1, "pay", &json!({"amount": "hunter2"}))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_version_lacks_comes_from_the_newest_of_its_tier() {
    let (bench, admin, agent) = set_up().await;
    let version = |version: &str, reason: &str, tag: &str| v1::Tool {
        tool_version: version.into(),
        irreversibility_reason: reason.into(),
        risk_tags: vec![tag.into()],
        ..tool("drop", "irreversible")
    };
    bench.tool(&admin, version("1.2.0", "old words", "old")).await.expect("1.2.0");
    bench.tool(&admin, version("1.10.0", "new words", "new")).await.expect("1.10.0");
    let safe = v1::Tool { tool_version: "2.0.0".into(), ..tool("drop", "safe") };
    bench.tool(&admin, safe).await.expect("2.0.0");
    let mut request = call(Uuid::new_v4(), 1, "drop", &json!({}));
    request.tool_call.as_mut().expect("a call").tool_version = "2.0.0".into();
    ask(&agent, request).await.expect("asked");
    let (reason, tags): (String, Vec<String>) =
        sqlx::query_as("SELECT irreversibility_reason, risk_tags FROM undolog_approval_requests")
            .fetch_one(bench.db.pool())
            .await
            .expect("the request");
    assert_eq!(reason, "new words");
    let mut all = tags;
    all.sort_unstable();
    assert_eq!(all, ["new", "old"], "the tags of every version");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_administrator_takes_out_of_use_begins_nothing_and_no_agent_brings_it_back() {
    let bench = Bench::start().await;
    let (admin, agent) = (bench.admin().await, bench.agent().await);
    bench.tools(&admin).await;
    let approver = bench.client("approver", "ann").await;
    let session = Uuid::new_v4();
    let set = |client: &undolog_tests::world::Client, name: &str, version: &str, is_active| {
        let (client, tool_name) = (client.clone(), name.to_owned());
        let (org_id, tool_version) = (String::new(), version.to_owned());
        async move {
            let request = v1::SetToolActiveRequest { org_id, tool_name, tool_version, is_active };
            let answer = client.registry().set_tool_active(request).await?;
            Ok::<_, tonic::Status>(answer.into_inner().changed_versions)
        }
    };
    assert_eq!(reason(set(&agent, "wipe", "", false).await), "PERMISSION_DENIED");
    assert_eq!(reason(set(&admin, "wpie", "", false).await), "TOOL_NOT_REGISTERED");
    assert_eq!(reason(set(&admin, "wipe", "9.9.9", false).await), "TOOL_NOT_REGISTERED");
    // An approval that was given before is not used up, and grants nothing either.
    let asked = ask(&agent, call(session, 1, "wipe", &json!({}))).await.expect("asked");
    let Outcome::AwaitingApproval(asked) = asked else { panic!("{asked:?}") };
    let request = v1::ApproveRequest { approval_id: asked.approval_id, ..Default::default() };
    approver.engine().approve(request).await.expect("approve");
    assert_eq!(set(&admin, "wipe", "", false).await.expect("out of use"), ["1.0.0"]);
    assert_eq!(set(&admin, "wipe", "", false).await.expect("again"), [""; 0]);
    let refused = ask(&agent, call(session, 1, "wipe", &json!({}))).await;
    assert_eq!(reason(refused), "TOOL_NOT_REGISTERED");
    let refused = ask(&agent, call(session, 2, "wipe", &json!({"a": 1}))).await;
    assert_eq!(reason(refused), "TOOL_NOT_REGISTERED");
    // An agent registers what it knows when it starts: nothing comes back by that.
    for version in ["", "1.0.1"] {
        let again = v1::Tool {
            irreversibility_reason: "gone".into(),
            tool_version: version.into(),
            ..tool("wipe", "irreversible")
        };
        let registered = bench.tool(&agent, again).await.expect("it may say so");
        assert!(!registered.tool.expect("a tool").is_active);
        let refused = ask(&agent, call(session, 1, "wipe", &json!({}))).await;
        assert_eq!(reason(refused), "TOOL_NOT_REGISTERED");
    }
    assert_eq!(set(&admin, "wipe", "1.0.0", true).await.expect("back"), ["1.0.0"]);
    let granted = ask(&agent, call(session, 1, "wipe", &json!({}))).await.expect("a grant");
    assert!(matches!(granted, Outcome::Execute(_)), "{granted:?}");

    // A compensation out of use takes no new calls.
    let request = v1::SetCompensationActiveRequest {
        fn_name: "undo_pay".into(),
        ..v1::SetCompensationActiveRequest::default()
    };
    let refused = agent.registry().set_compensation_active(request.clone()).await;
    assert_eq!(reason(refused), "PERMISSION_DENIED");
    let changed = admin.registry().set_compensation_active(request.clone()).await.expect("set");
    assert_eq!(changed.into_inner().changed_versions, ["1.0.0"]);
    let refused = ask(&agent, call(Uuid::new_v4(), 1, "pay", &json!({}))).await;
    assert_eq!(reason(refused), "COMPENSATION_UNUSABLE");
    let back = v1::SetCompensationActiveRequest { is_active: true, ..request };
    admin.registry().set_compensation_active(back).await.expect("back");
    ask(&agent, call(Uuid::new_v4(), 1, "pay", &json!({}))).await.expect("a grant");
}
