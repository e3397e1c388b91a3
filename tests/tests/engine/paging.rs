//! Lists by pages, of rows and of bytes, with what was stored given back exactly.

use serde_json::json;
use undolog_proto::v1;
use undolog_tests::world::Client;
use uuid::Uuid;

use super::bench::{Bench, call, commit, grant, reason, tool};

#[tokio::test(flavor = "multi_thread")]
async fn sessions_come_newest_first_and_every_one_once() {
    let bench = Bench::start().await;
    let agent = bench.agent().await;
    let mut begun = Vec::new();
    for n in 0..7 {
        let request = v1::BeginRequest {
            external_run_id: format!("run-{}", n % 2),
            metadata: br#"{"n":1E2,"big":12345678901234567890}"#.to_vec(),
            ..Default::default()
        };
        begun.push(agent.sessions().begin(request).await.expect("begin").into_inner().session_id);
    }
    begun.reverse();
    let (mut seen, mut token) = (Vec::new(), String::new());
    loop {
        let request =
            v1::ListSessionsRequest { page_size: 3, page_token: token, ..Default::default() };
        let page = agent.sessions().list(request).await.expect("a page").into_inner();
        assert!(page.sessions.len() <= 3);
        for session in &page.sessions {
            assert_eq!(session.metadata, br#"{"n":1E2,"big":12345678901234567890}"#);
        }
        seen.extend(page.sessions.into_iter().map(|session| session.session_id));
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(seen, begun);
    let of_run = v1::ListSessionsRequest { external_run_id: "run-1".into(), ..Default::default() };
    let page = agent.sessions().list(of_run).await.expect("a page").into_inner();
    assert_eq!(page.sessions.len(), 3);
    let none = v1::ListSessionsRequest { states: vec!["halted".into()], ..Default::default() };
    assert!(agent.sessions().list(none).await.expect("a page").into_inner().sessions.is_empty());
}

async fn effects(
    client: &Client,
    session: Uuid,
    size: u32,
    token: &str,
) -> v1::ListEffectsResponse {
    let request = v1::ListEffectsRequest {
        session_id: session.to_string(),
        page_size: size,
        page_token: token.into(),
        ..Default::default()
    };
    client.sessions().list_effects(request).await.expect("a page").into_inner()
}

#[tokio::test(flavor = "multi_thread")]
async fn effects_page_by_bytes_too() {
    let bench = Bench::start().await;
    let admin = bench.admin().await;
    bench.tools(&admin).await;
    let agent = bench.agent().await;
    let session = Uuid::new_v4();
    let large = "x".repeat(1_200_000);
    for step in 1..=4 {
        let effect = grant(&agent, call(session, step, "pay", &json!({"text": large}))).await;
        commit(&agent, session, &effect, &json!({"step": step})).await.expect("commit");
    }
    let (mut steps, mut token, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let page = effects(&agent, session, 500, &token).await;
        assert!(page.effects.len() < 4, "a page is cut by its bytes");
        for effect in &page.effects {
            assert_eq!(effect.result, format!(r#"{{"step":{}}}"#, effect.step_index).as_bytes());
        }
        steps.extend(page.effects.iter().map(|effect| effect.step_index));
        token = page.next_page_token;
        pages += 1;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(steps, [1, 2, 3, 4]);
    assert!(pages >= 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_jsonb_cannot_hold_is_shown_as_it_was_sent() {
    let bench = Bench::start().await;
    let admin = bench.admin().await;
    bench.tools(&admin).await;
    let agent = bench.agent().await;
    let session = Uuid::new_v4();
    let args = br#"{"z":"nul \u0000 here","a":1.50,"e":1e3}"#.to_vec();
    let mut request = call(session, 1, "pay", &json!({}));
    request.tool_call.as_mut().expect("a call").args.clone_from(&args);
    let effect = grant(&agent, request).await;
    let output = br#"{"n":1e400,"n":2,"id":123456789012345678901234567890}"#.to_vec();
    let result = v1::ToolResult { success: true, output: output.clone(), ..Default::default() };
    let commit = v1::CommitRequest {
        effect_id: effect,
        session_id: session.to_string(),
        result: Some(result),
        ..Default::default()
    };
    agent.engine().commit(commit).await.expect("commit");
    let page = effects(&agent, session, 0, "").await;
    assert_eq!(page.effects[0].args, args);
    assert_eq!(page.effects[0].result, output);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_have_a_size_and_tokens_belong_to_their_list() {
    let bench = Bench::start().await;
    let admin = bench.admin().await;
    bench.tools(&admin).await;
    for n in 0..4 {
        bench.tool(&admin, tool(&format!("tool-{n}"), "safe")).await.expect("register");
    }
    let list = |page_size: u32, page_token: String| {
        let mut registry = admin.registry();
        async move {
            let request = v1::ListToolsRequest { page_size, page_token, org_id: String::new() };
            registry.list_tools(request).await
        }
    };
    assert_eq!(reason(list(501, String::new()).await), "LIMIT_EXCEEDED");
    assert_eq!(reason(list(1, "nonsense".into()).await), "CURSOR_INVALID");
    let first = list(2, String::new()).await.expect("a page").into_inner();
    let request =
        v1::ListSessionsRequest { page_token: first.next_page_token.clone(), ..Default::default() };
    assert_eq!(reason(admin.sessions().list(request).await), "CURSOR_INVALID");
    let (mut names, mut token) = (Vec::new(), String::new());
    loop {
        let page = list(2, token).await.expect("a page").into_inner();
        names.extend(page.tools.into_iter().map(|tool| tool.tool_name));
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(names, ["look", "pay", "tool-0", "tool-1", "tool-2", "tool-3", "wipe"]);
    let request = v1::ListCompensationsRequest::default();
    let page = admin.registry().list_compensations(request).await.expect("a page").into_inner();
    assert_eq!(page.compensations.len(), 1);
    assert_eq!(page.compensations[0].max_retries, Some(3));
}
