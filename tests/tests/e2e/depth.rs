//! What is nested as deep as the limit allows is taken, shown, decided about and undone; whatever
//! is wrapped around it on the way. What is deeper is refused, and nothing of it is kept.

use serde_json::json;
use undolog_core::limits::JSON_DEPTH_MAX;
use undolog_proto::v1::{
    ApproveRequest, BeginRequest, CommitRequest, CompensationDescriptor, GetApprovalRequest,
    GetToolRequest, InterceptRequest, ListApprovalsRequest, ListEffectsRequest, ListToolsRequest,
    RegisterToolRequest, Tool, ToolCall, ToolResult, intercept_response::Outcome,
};
use undolog_tests::world::{Agent, ToolSpec, grant, reason_of};
use undolog_tests::{SOON, World};

/// An object whose member `x` makes the whole nest this deep.
fn deep(depth: usize) -> String {
    let lists = depth - 1;
    format!("{{\"id\":\"i\",\"x\":{}{}}}", "[".repeat(lists), "]".repeat(lists))
}

fn request(agent: &Agent, step: u32, tool: &str, args: &str) -> InterceptRequest {
    InterceptRequest {
        tool_call: Some(ToolCall {
            session_id: agent.session.to_string(),
            tool_name: tool.to_owned(),
            step_index: step,
            args: args.as_bytes().to_vec(),
            ..ToolCall::default()
        }),
        ..InterceptRequest::default()
    }
}

/// A session whose metadata is as deep as it may be.
async fn agent(world: &World) -> Agent {
    let begin =
        BeginRequest { metadata: deep(JSON_DEPTH_MAX).into_bytes(), ..BeginRequest::default() };
    Agent::begin_with(world.client("agent", "agent-1").await, &world.witness, begin).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deep_request_is_listed_shown_edited_and_granted() {
    let world = World::start().await;
    world.tool(ToolSpec::irreversible("wipe")).await;
    let agent = agent(&world).await;
    let mut asked = request(&agent, 1, "wipe", &deep(JSON_DEPTH_MAX));
    asked.agent_context = deep(JSON_DEPTH_MAX).into_bytes();
    asked.accepts_approved_args = true;
    let Outcome::AwaitingApproval(waiting) = agent.ask(asked.clone()).await.unwrap() else {
        panic!("a request");
    };
    let approval_id = waiting.approval_id;
    let approver = world.client("approver", "boss").await;
    let mut operator = approver.operator();
    let listed = operator.list_approvals(ListApprovalsRequest::default()).await.unwrap();
    let context = listed.into_inner().approvals.remove(0).agent_context;
    assert!(String::from_utf8(context).unwrap().contains(&deep(JSON_DEPTH_MAX)[9..]));
    // Keys and values that only look like an escaped NUL, and ones that hold one.
    let edited = format!(
        r#"{{"a\\u0000":"\\u0000","b\u0000":"\u0000","deep":{}}}"#,
        deep(JSON_DEPTH_MAX - 1)
    );
    let approve = ApproveRequest {
        approval_id: approval_id.clone(),
        approved_args: edited.clone().into_bytes(),
        ..ApproveRequest::default()
    };
    approver.engine().approve(approve).await.unwrap();
    let shown = operator.get_approval(GetApprovalRequest { approval_id, ..Default::default() });
    let shown = shown.await.unwrap().into_inner();
    let diff = String::from_utf8(shown.events[0].args_diff.clone()).unwrap();
    assert!(diff.contains(r#""\\u0000""#) && diff.contains("/b\u{2400}"), "{diff}");
    let granted = grant(agent.ask(asked).await);
    assert_eq!(String::from_utf8(granted.approved_args).unwrap(), edited);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deep_call_is_shown_and_undone() {
    let world = World::start().await;
    let tool = ToolSpec::compensable("charge").body("endpoint", json!("/undo/charge")).body(
        "arg_mapping",
        json!({"w": {"args": "{args}", "result": "{result}", "comp": "{comp.w}"}}),
    );
    // The witness knows no charge of this id; what counts is what it was sent.
    world.tool(tool.body("done_statuses", json!([404]))).await;
    let agent = agent(&world).await;
    let mut asked = request(&agent, 1, "charge", &deep(JSON_DEPTH_MAX));
    asked.compensation = Some(CompensationDescriptor {
        fn_name: "undo_charge".to_owned(),
        args: br#"{"w":{"of":"{x}","id":"{result.id}"}}"#.to_vec(),
        ..CompensationDescriptor::default()
    });
    let granted = grant(agent.ask(asked).await);
    let commit = CommitRequest {
        effect_id: granted.effect_id,
        session_id: agent.session.to_string(),
        result: Some(ToolResult {
            success: true,
            output: deep(JSON_DEPTH_MAX).into_bytes(),
            ..ToolResult::default()
        }),
        ..CommitRequest::default()
    };
    agent.client.engine().commit(commit).await.unwrap();
    let shown = agent.show().await.unwrap();
    assert_eq!(shown.undo_stack.len(), 1);
    assert_eq!(shown.session.unwrap().metadata, deep(JSON_DEPTH_MAX).into_bytes());
    let list = ListEffectsRequest {
        session_id: agent.session.to_string(),
        ..ListEffectsRequest::default()
    };
    let listed = agent.client.sessions().list_effects(list).await.unwrap().into_inner();
    assert_eq!(listed.effects[0].result, deep(JSON_DEPTH_MAX).into_bytes());
    agent.rollback().await.unwrap();
    agent.wait_state("compensated", SOON).await;
    let call = world.witness.calls_to("/undo/").remove(0);
    let body = String::from_utf8(call.body.clone()).unwrap();
    assert_eq!(body.matches(&"[".repeat(JSON_DEPTH_MAX - 1)).count(), 3, "{body}");
    world.rollback_check(agent.session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deep_schema_is_kept_and_listed() {
    let world = World::start().await;
    let agent = world.client("agent", "agent-1").await;
    let mut registry = agent.registry();
    let tool = |name: &str, depth: usize| RegisterToolRequest {
        tool: Some(Tool {
            tool_name: name.to_owned(),
            tier: "safe".to_owned(),
            tool_schema: format!("{{\"default\":{}}}", deep(depth - 1)).into_bytes(),
            ..Tool::default()
        }),
        ..RegisterToolRequest::default()
    };
    registry.register_tool(tool("deep", JSON_DEPTH_MAX)).await.unwrap();
    let refused = registry.register_tool(tool("deeper", JSON_DEPTH_MAX + 1)).await.unwrap_err();
    assert_eq!(reason_of(&refused), "INVALID_ARGUMENT");
    let listed = registry.list_tools(ListToolsRequest::default()).await.unwrap().into_inner();
    let names: Vec<_> = listed.tools.iter().map(|tool| tool.tool_name.as_str()).collect();
    assert_eq!(names, ["deep"]);
    let get = GetToolRequest { tool_name: "deep".to_owned(), ..GetToolRequest::default() };
    registry.get_tool(get).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_deep_is_refused_and_leaves_no_row() {
    let world = World::start().await;
    world.tool(ToolSpec::irreversible("wipe")).await;
    world.tool(ToolSpec::compensable("charge")).await;
    let agent = agent(&world).await;
    let too_deep = deep(JSON_DEPTH_MAX + 1);
    let mut context = request(&agent, 1, "wipe", "{}");
    context.agent_context = too_deep.clone().into_bytes();
    let mut descriptor = request(&agent, 1, "charge", "{}");
    descriptor.compensation = Some(CompensationDescriptor {
        fn_name: "undo_charge".to_owned(),
        args: too_deep.clone().into_bytes(),
        ..CompensationDescriptor::default()
    });
    for asked in [request(&agent, 1, "charge", &too_deep), context, descriptor] {
        let refused = agent.ask(asked).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused:?}");
    }
    let rows: i64 = sqlx::query_scalar(
        "SELECT (SELECT count(*) FROM undolog_effect_log) \
         + (SELECT count(*) FROM undolog_approval_requests)",
    )
    .fetch_one(world.pool())
    .await
    .unwrap();
    assert_eq!(rows, 0);
}
