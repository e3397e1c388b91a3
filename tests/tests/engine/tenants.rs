//! Tenants: an organisation is the key's own, and what is another's does not exist.

use serde_json::json;
use tonic::{Request, Status};
use undolog_proto::v1::{self, intercept_response::Outcome};
use undolog_tests::world::{Client, Org};
use uuid::Uuid;

use super::bench::{Bench, ask, call, commit, grant, reason};

#[tokio::test(flavor = "multi_thread")]
async fn a_request_names_its_keys_organisation_or_none() {
    let bench = Bench::start().await;
    let other = Org::create(bench.db.pool(), "other").await;
    let admin = bench.admin().await;
    let list = |org_id: String| {
        let admin = admin.clone();
        async move {
            let request = v1::ListToolsRequest { org_id, ..v1::ListToolsRequest::default() };
            admin.registry().list_tools(request).await
        }
    };
    for own in [String::new(), bench.org.slug.clone(), bench.org.id.to_string()] {
        list(own).await.expect("the key's own organisation");
    }
    for foreign in [other.slug.clone(), other.id.to_string(), "nobody".to_owned()] {
        assert_eq!(reason(list(foreign).await), "ORG_MISMATCH");
    }
    let mut request = Request::new(v1::ListToolsRequest::default());
    request.metadata_mut().insert("x-undolog-org-id", "other".parse().expect("a header"));
    assert_eq!(reason(admin.registry().list_tools(request).await), "ORG_MISMATCH");
    let mut intercept = call(Uuid::new_v4(), 1, "pay", &json!({}));
    intercept.tool_call.as_mut().expect("a call").org_id = other.id.to_string();
    assert_eq!(reason(ask(&admin, intercept).await), "ORG_MISMATCH");
}

/// Every RPC that names a session, as this client calls it.
#[expect(clippy::needless_update, reason = "one shape serves requests of any length")]
async fn each_session_call(client: &Client, session: Uuid) -> Vec<(&'static str, Option<Status>)> {
    let (org_id, session_id) = (String::new(), session.to_string());
    let effect_id = Uuid::now_v7().to_string();
    let mut sessions = client.sessions();
    let mut engine = client.engine();
    let mut answers = Vec::new();
    macro_rules! each {
        ($($client:ident.$method:ident($request:ident { $($more:tt)* }),)+) => {
            $(
                let request = v1::$request {
                    org_id: org_id.clone(),
                    session_id: session_id.clone(),
                    $($more)*
                    ..v1::$request::default()
                };
                answers.push((stringify!($method), $client.$method(request).await.err()));
            )+
        };
    }
    each! {
        sessions.get(GetSessionRequest {}),
        sessions.list_effects(ListEffectsRequest {}),
        sessions.get_replay(GetReplayRequest {}),
        sessions.watch_events(WatchEventsRequest {}),
        sessions.heartbeat(HeartbeatRequest {}),
        sessions.savepoint(SavepointRequest {}),
        sessions.rollback(RollbackRequest {}),
        sessions.complete(CompleteRequest {}),
        sessions.fail_session(FailSessionRequest { rollback: true, }),
        engine.commit(CommitRequest {
            effect_id: effect_id.clone(), result: Some(v1::ToolResult::default()),
        }),
        engine.fail(FailRequest { effect_id: effect_id.clone(), }),
    }
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn another_organisations_and_another_agents_sessions_do_not_exist() {
    let bench = Bench::start().await;
    let admin = bench.admin().await;
    bench.tools(&admin).await;
    let owner = bench.agent().await;
    let session = Uuid::new_v4();
    let effect = grant(&owner, call(session, 1, "pay", &json!({}))).await;
    let other = Org::create(bench.db.pool(), "other").await;
    let strangers = [
        bench.client("agent", "agent-2").await,
        bench.client_of(&other, "agent", "agent-1").await,
        bench.client_of(&other, "admin", "root").await,
    ];
    for stranger in &strangers {
        for (method, status) in each_session_call(stranger, session).await {
            let status = status.unwrap_or_else(|| panic!("{method} was let in"));
            assert_eq!(reason::<()>(Err(status)), "SESSION_NOT_FOUND", "{method}");
        }
        let none = stranger.sessions().list(v1::ListSessionsRequest::default()).await;
        assert!(none.expect("a list").into_inner().sessions.is_empty());
    }
    // Another organisation's admin sees the same as for an id that was never used.
    let nowhere = each_session_call(&strangers[2], Uuid::new_v4()).await;
    for ((method, status), (_, known)) in
        nowhere.into_iter().zip(each_session_call(&strangers[2], session).await)
    {
        let (status, known) = (status.expect("a refusal"), known.expect("a refusal"));
        assert_eq!(status.code(), known.code(), "{method}");
    }
    commit(&owner, session, &effect, &json!({"id": 1})).await.expect("the owner's own commit");
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_effects_and_approvals_are_not_found() {
    let bench = Bench::start().await;
    let admin = bench.admin().await;
    bench.tools(&admin).await;
    let agent = bench.agent().await;
    let (mine, theirs) = (Uuid::new_v4(), Uuid::new_v4());
    let effect = grant(&agent, call(theirs, 1, "pay", &json!({}))).await;
    grant(&agent, call(mine, 1, "pay", &json!({}))).await;
    // An effect of another session of the same agent, and an id that nobody ever had.
    for id in [effect, Uuid::now_v7().to_string(), Uuid::new_v4().to_string()] {
        assert_eq!(reason(commit(&agent, mine, &id, &json!({})).await), "EFFECT_NOT_FOUND");
    }
    let asked = ask(&agent, call(mine, 2, "wipe", &json!({}))).await.expect("asked");
    let Outcome::AwaitingApproval(asked) = asked else { panic!("{asked:?}") };
    let other = Org::create(bench.db.pool(), "other").await;
    let stranger = bench.client_of(&other, "approver", "eve").await;
    for approval_id in [asked.approval_id.clone(), Uuid::new_v4().to_string()] {
        let request = v1::ApproveRequest { approval_id: approval_id.clone(), ..Default::default() };
        assert_eq!(reason(stranger.engine().approve(request).await), "APPROVAL_NOT_FOUND");
        let request = v1::RejectRequest { approval_id, ..Default::default() };
        assert_eq!(reason(stranger.engine().reject(request).await), "APPROVAL_NOT_FOUND");
    }
    let approver = bench.client("approver", "ann").await;
    let request = v1::ApproveRequest { approval_id: asked.approval_id, ..Default::default() };
    approver.engine().approve(request).await.expect("approve");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_id_taken_by_another_organisation_is_refused_like_any() {
    let bench = Bench::start().await;
    let admin = bench.admin().await;
    bench.tools(&admin).await;
    let session = Uuid::new_v4();
    let first = bench.agent().await;
    grant(&first, call(session, 1, "pay", &json!({}))).await;
    let same_org = bench.client("agent", "agent-2").await;
    let other = Org::create(bench.db.pool(), "other").await;
    let far_admin = bench.client_of(&other, "admin", "root").await;
    bench.tools(&far_admin).await;
    let far = bench.client_of(&other, "agent", "agent-1").await;
    let near_reason = reason(ask(&same_org, call(session, 1, "pay", &json!({}))).await);
    let far_reason = reason(ask(&far, call(session, 1, "pay", &json!({}))).await);
    assert_eq!(near_reason, far_reason);
    let begin = v1::BeginRequest { session_id: session.to_string(), ..Default::default() };
    let near_reason = reason(same_org.sessions().begin(begin.clone()).await);
    assert_eq!(near_reason, reason(far.sessions().begin(begin).await));
    let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM undolog_effect_log")
        .fetch_one(bench.db.pool())
        .await
        .expect("count");
    assert_eq!(rows, 1, "no stranger's call left a row");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_session_of_a_header_is_the_session_of_the_request() {
    let bench = Bench::start().await;
    let admin = bench.admin().await;
    bench.tools(&admin).await;
    let agent = bench.agent().await;
    let session = Uuid::new_v4();
    let with = |header: String| {
        let mut request = Request::new(call(session, 1, "pay", &json!({})));
        let value = header.parse().expect("a header");
        request.metadata_mut().insert("x-undolog-session-id", value);
        request
    };
    let answer = agent.engine().intercept(with(Uuid::new_v4().to_string())).await;
    assert_eq!(reason(answer), "INVALID_ARGUMENT");
    agent.engine().intercept(with(session.to_string())).await.expect("the same session");
}
