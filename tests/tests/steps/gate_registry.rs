//! What a registration says of approvals, probes and limits, and who may say it.

use serde_json::json;
use undolog_core::{Reason, Tier, role::Role};
use undolog_store::{
    StepError,
    registry::{RegisterTool, Registered, ToolInput, ToolRow},
};
use undolog_tests::inputs;

use crate::bench::{Bench, awaiting, refused};

async fn register(
    bench: &Bench,
    role: Role,
    change: impl FnOnce(&mut ToolInput),
) -> Result<Registered<ToolRow>, StepError> {
    let mut tool = ToolInput {
        irreversibility_reason: "it is gone".into(),
        tool_schema: Vec::new(),
        caller_args: false,
        ..inputs::tool("drop", Tier::Irreversible)
    };
    change(&mut tool);
    let step = RegisterTool { caller: bench.caller(role, "agent-1"), tool, dev: false };
    bench.store.run(step).await
}

fn probe() -> Vec<u8> {
    json!({
        "method": "GET", "endpoint": "https://pay.example/{effect_id}",
        "happened": {"status": [200]}, "did_not_happen": {"status": [404]},
    })
    .to_string()
    .into_bytes()
}

#[tokio::test]
async fn an_agent_makes_no_decision_easier() {
    let bench = Bench::new().await;
    let weaker: [fn(&mut ToolInput); 4] = [
        |tool| tool.auto_approve_on_timeout = Some(true),
        |tool| tool.requester_may_approve = Some(true),
        |tool| tool.approval_timeout_seconds = 1,
        |tool| tool.probe = probe(),
    ];
    for change in weaker {
        refused(register(&bench, Role::Agent, change).await, Reason::PermissionDenied);
    }
    let strict = |tool: &mut ToolInput| {
        tool.approval_quorum = 2;
        tool.auto_approve_on_timeout = Some(false);
    };
    let made = register(&bench, Role::Agent, strict).await.expect("stricter is free");
    assert!(made.created);
    assert_eq!(made.row.approval_quorum, Some(2));
    refused(register(&bench, Role::Agent, |_| {}).await, Reason::PermissionDenied);
    let newer = |tool: &mut ToolInput| tool.tool_version = "2.0.0".into();
    refused(register(&bench, Role::Agent, newer).await, Reason::PermissionDenied);
    register(&bench, Role::Agent, |tool| {
        newer(tool);
        strict(tool);
    })
    .await
    .expect("as strict as the other version");
    let (_, approval) = awaiting(&bench.ask(1, "drop").await.expect("asked"));
    bench.approve(approval, None).await.expect("the first vote");
    let state = "SELECT state::text FROM undolog_approval_requests WHERE session_id = $1";
    assert_eq!(bench.text(state).await, "pending", "the quorum is two");
    bench.check().await;
}

#[tokio::test]
async fn an_administrator_sets_policy_and_probe_within_their_form() {
    let bench = Bench::new().await;
    let row = register(&bench, Role::Admin, |tool| {
        tool.approval_timeout_seconds = 120;
        tool.auto_approve_on_timeout = Some(true);
        tool.requester_may_approve = Some(false);
        tool.probe = probe();
    })
    .await
    .expect("registered")
    .row;
    assert_eq!(row.approval_timeout_seconds, Some(120));
    assert_eq!((row.auto_approve_on_timeout, row.requester_may_approve), (Some(true), Some(false)));
    assert!(row.probe.is_some_and(|probe| probe.contains("pay.example")));
    let bad: [fn(&mut ToolInput); 4] = [
        |tool| tool.approval_quorum = 21,
        |tool| tool.approval_timeout_seconds = 31_622_401,
        |tool| tool.probe = b"{}".to_vec(),
        |tool| tool.probe = b"{".to_vec(),
    ];
    for change in bad {
        refused(register(&bench, Role::Admin, change).await, Reason::InvalidArgument);
    }
}
