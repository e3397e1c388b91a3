//! Tools with an endpoint: the proxy runs the granted call, once, and says what became of it.

use std::time::Duration;

use serde_json::{Value, json};
use undolog_tests::run::{EngineOptions, Proxy, ProxyOptions, WorkerOptions};
use undolog_tests::witness::{Act, Script};
use undolog_tests::{SOON, TestDb, World, eventually, within};
use uuid::Uuid;

use super::bench::{Bench, Http};

fn call(session: Uuid, step: u32, tool: &str, args: Value) -> Value {
    json!({"session_id": session, "tool_name": tool, "step_index": step, "args": args})
}

/// Registers `pay` (compensable) and `send` (irreversible), both run by the proxy.
async fn register(bench: &Bench, change: impl Fn(&mut Value)) {
    let admin = bench.client("admin", "root").await;
    for (name, tier) in [("pay", "compensable"), ("send", "irreversible")] {
        let mut tool = json!({"tier": tier, "upstream": {
            "endpoint": bench.world.witness.url(&format!("/do/{name}")),
            "arg_mapping": {"amount": "{args.amount}", "by": "{effect_id}"},
            "timeout_ms": 5_000, "not_applied_statuses": [404, 422]}});
        if tier == "compensable" {
            tool["compensation_ref"] = json!("undo_charge");
        } else {
            tool["irreversibility_reason"] = json!("it is sent");
        }
        change(&mut tool);
        admin.put(&format!("/tools/{name}"), tool).await.is(200);
    }
}

async fn bench() -> Bench {
    let bench = Bench::with_executor().await;
    register(&bench, |_| {}).await;
    bench
}

/// A session that goes on after a failed call.
async fn going_on(agent: &Http) -> Uuid {
    let begun = agent.post("/sessions", json!({"on_tool_failure": "continue"})).await.is(200);
    begun.body["session_id"].as_str().unwrap().parse().unwrap()
}

async fn effect_of(agent: &Http, session: Uuid) -> Value {
    let listed = agent.get(&format!("/sessions/{session}/effects")).await.is(200).body;
    listed["effects"][0].clone()
}

/// Waits until the session's only effect is in this state.
async fn wait_effect(agent: &Http, session: Uuid, state: &str) -> Value {
    eventually(&format!("the effect of {session} is {state}"), || async {
        let effect = effect_of(agent, session).await;
        if effect["state"] == state { Ok(effect) } else { Err(effect["state"].clone()) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_granted_call_is_run_once_and_committed() {
    let bench = bench().await;
    let agent = bench.agent().await;
    let session = agent.begin().await;
    let asked = call(session, 1, "pay", json!({"amount": 1.5}));
    let answered = agent.call(asked.clone()).await.is(200).body;
    assert_eq!(answered["status"], "replayed");
    assert_eq!(answered["executed_by"], "proxy");
    assert_eq!(answered["result"]["success"], true);
    assert_eq!(answered["result"]["output"]["id"], "pay-1", "{answered}");
    let effect = answered["effect_id"].as_str().unwrap();
    let calls = bench.world.witness.calls_to("/do/pay");
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].key(), Some(effect));
    let body: Value = serde_json::from_slice(&calls[0].body).unwrap();
    assert_eq!(body, json!({"amount": 1.5, "by": effect}));

    let replayed = agent.call(asked).await.is(200).body;
    assert_eq!(replayed["executed_by"], Value::Null);
    assert_eq!(replayed["result"]["output"], answered["result"]["output"]);
    assert_eq!(bench.world.witness.calls_to("/do/pay").len(), 1);
    agent.post(&format!("/sessions/{session}/rollback"), json!({})).await.is(200);
    bench.world.witness.wait_for("/undo/charge/pay-1", 1, SOON).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_endpoint_does_decides_what_is_known() {
    let bench = bench().await;
    let agent = bench.agent().await;
    for (act, status, state, outcome) in [
        (Act::Status(404), 200, "failed", "not_applied"),
        (Act::Status(400), 200, "failed", "maybe_applied"),
        (Act::Status(500), 200, "failed", "maybe_applied"),
        (Act::Redirect("http://127.0.0.1:1/".to_owned()), 200, "failed", "maybe_applied"),
        (Act::AppliedThenClose, 409, "unknown", ""),
        (Act::Hang, 409, "unknown", ""),
    ] {
        bench.world.witness.behave();
        bench.world.witness.script(Script::always("/do/pay", act.clone()));
        let session = going_on(&agent).await;
        let answered = agent.call(call(session, 1, "pay", json!({"amount": 1}))).await;
        assert_eq!(answered.status.as_u16(), status, "{act:?}: {}", answered.text);
        if status == 200 {
            assert_eq!(answered.body["result"]["success"], false, "{act:?}");
            assert!(answered.body["result"]["error"].is_string(), "{act:?}");
        } else {
            assert_eq!(answered.code(), "OUTCOME_UNKNOWN", "{act:?}");
        }
        let effect = effect_of(&agent, session).await;
        assert_eq!(effect["state"], state, "{act:?}");
        assert_eq!(effect["outcome"].as_str().unwrap_or_default(), outcome, "{act:?}");
    }
    // Nobody listens, or the call cannot even be made: nothing was changed.
    register(&bench, |tool| tool["upstream"]["endpoint"] = json!("http://127.0.0.1:9/x")).await;
    let session = going_on(&agent).await;
    agent.call(call(session, 1, "pay", json!({"amount": 1}))).await.is(200);
    assert_eq!(effect_of(&agent, session).await["outcome"], "not_applied");
    register(&bench, |tool| tool["upstream"]["endpoint"] = json!("https://169.254.169.254/")).await;
    let session = going_on(&agent).await;
    let answered = agent.call(call(session, 1, "pay", json!({"amount": 1}))).await.is(200).body;
    assert!(answered["result"]["error"].as_str().unwrap().contains("not allowed"), "{answered}");
    assert_eq!(effect_of(&agent, session).await["outcome"], "not_applied");
    register(&bench, |_| {}).await;
    let session = going_on(&agent).await;
    agent.call(call(session, 1, "pay", json!({}))).await.is(200);
    assert_eq!(effect_of(&agent, session).await["outcome"], "not_applied");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_turns_a_call_away_is_asked_again() {
    let bench = bench().await;
    register(&bench, |tool| tool["upstream"]["not_applied_statuses"] = json!([503])).await;
    let agent = bench.agent().await;
    for status in [429, 503] {
        bench.world.witness.behave();
        let before = bench.world.witness.calls_to("/do/pay").len();
        bench.world.witness.script(Script::times("/do/pay", 2, Act::RetryAfter(status, 1)));
        let session = agent.begin().await;
        let answered = agent.call(call(session, 1, "pay", json!({"amount": 1}))).await.is(200).body;
        assert_eq!(answered["result"]["success"], true, "{answered}");
        let calls = bench.world.witness.calls_to("/do/pay").split_off(before);
        assert_eq!(calls.len(), 3, "{status}");
        assert!(calls.iter().all(|call| call.key() == answered["effect_id"].as_str()));
        // A minute is too long to wait for, and nothing was done: the caller may try again later.
        let script = Script::always("/do/pay", Act::RetryAfter(status, 60));
        bench.world.witness.script(script);
        let session = going_on(&agent).await;
        let answered = agent.call(call(session, 1, "pay", json!({"amount": 1}))).await.is(200).body;
        assert_eq!(answered["result"]["success"], false, "{answered}");
        assert_eq!(effect_of(&agent, session).await["outcome"], "not_applied");
    }
    // Where nobody said that a 503 means so, nobody knows.
    register(&bench, |_| {}).await;
    let session = going_on(&agent).await;
    agent.call(call(session, 1, "pay", json!({"amount": 1}))).await.is(200);
    assert_eq!(effect_of(&agent, session).await["outcome"], "maybe_applied");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_success_whose_body_says_otherwise_is_a_failure() {
    let bench = bench().await;
    let when = json!({"pointer": "/ok", "equals": true});
    register(&bench, |tool| tool["upstream"]["done_when"] = when.clone()).await;
    let agent = bench.agent().await;
    for (body, success) in [(r#"{"ok":false}"#, false), (r#"{"ok":true}"#, true)] {
        bench.world.witness.behave();
        let answer = Act::Answer(200, Vec::new(), body.to_owned());
        bench.world.witness.script(Script::always("/do/pay", answer));
        let session = going_on(&agent).await;
        let answered = agent.call(call(session, 1, "pay", json!({"amount": 1}))).await.is(200).body;
        assert_eq!(answered["result"]["success"], success, "{answered}");
        let outcome = effect_of(&agent, session).await["outcome"].clone();
        assert_eq!(outcome == "maybe_applied", !success, "{outcome}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_changes_nothing() {
    let bench = bench().await;
    let agent = bench.agent().await;
    let session = agent.begin().await;
    let gate = bench.world.witness.hold("/do/pay");
    let asked = call(session, 1, "pay", json!({"amount": 1}));
    let request = agent.request(reqwest::Method::POST, "/mcp/tool_call").body(asked.to_string());
    let gone = tokio::spawn(request.send());
    bench.world.witness.wait_for("/do/pay", 1, SOON).await;
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    agent.call(asked.clone()).await.refused(409, "IN_PROGRESS");
    gate.open();
    wait_effect(&agent, session, "committed").await;
    assert_eq!(agent.call(asked).await.is(200).body["result"]["output"]["id"], "pay-1");
    assert_eq!(bench.world.witness.calls_to("/do/pay").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_token_through_two_proxies_runs_it_once() {
    let bench = bench().await;
    let engine = bench.world.engines[0].grpc_url();
    let second = Proxy::start(&engine, ProxyOptions::default()).await;
    let agent = bench.agent().await;
    let other = Http { base: second.url(""), ..agent.clone() };
    let session = agent.begin().await;
    let gate = bench.world.witness.hold("/do/pay");
    let mut asked = call(session, 1, "pay", json!({"amount": 1}));
    asked["grant_token"] = json!("the same");
    let (first, again) = (agent.clone(), asked.clone());
    let first = tokio::spawn(async move { first.call(again).await });
    bench.world.witness.wait_for("/do/pay", 1, SOON).await;
    other.call(asked.clone()).await.refused(409, "IN_PROGRESS");
    gate.open();
    assert_eq!(first.await.unwrap().is(200).body["executed_by"], "proxy");
    assert_eq!(other.call(asked).await.is(200).body["status"], "replayed");
    assert_eq!(bench.world.witness.calls_to("/do/pay").len(), 1);
}

/// Asks for `send` and answers its approval.
async fn pending(agent: &Http, session: Uuid) -> String {
    let asked = call(session, 1, "send", json!({"amount": 1}));
    let pending = agent.call(asked).await.is(202).body;
    pending["approval_id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approved_call_is_run_by_one_of_many_proxies_with_the_approved_arguments() {
    let bench = bench().await;
    let key = bench.world.org.key(bench.world.pool(), "executor", "proxy").await;
    let engine = bench.world.engines[0].grpc_url();
    let options = ProxyOptions {
        environment: vec![("UNDOLOG_PROXY_KEY".to_owned(), key)],
        ..ProxyOptions::default()
    };
    let _second = Proxy::start(&engine, options.clone()).await;
    let _third = Proxy::start(&engine, options).await;
    let agent = bench.agent().await;
    let ann = bench.client("approver", "ann").await;
    let session = agent.begin().await;
    let approval = pending(&agent, session).await;
    let edited = json!({"approved_args": {"amount": 2}});
    ann.post(&format!("/approvals/{approval}/approve"), edited).await.is(200);
    wait_effect(&agent, session, "committed").await;
    let calls = bench.world.witness.calls_to("/do/send");
    assert_eq!(calls.len(), 1);
    assert!(String::from_utf8_lossy(&calls[0].body).contains("\"amount\":2"));
    // The caller that asked hears the result when it asks again.
    let asked = call(session, 1, "send", json!({"amount": 1}));
    let replayed = agent.call(asked).await.is(200).body;
    assert_eq!(replayed["result"]["output"]["id"], "send-1");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_automatic_approval_is_run_too_and_a_registration_can_say_no() {
    let bench = Bench::with_executor().await;
    register(&bench, |tool| {
        tool["approval_timeout_seconds"] = json!(1);
        tool["auto_approve_on_timeout"] = json!(true);
    })
    .await;
    let agent = bench.agent().await;
    let session = agent.begin().await;
    pending(&agent, session).await;
    wait_effect(&agent, session, "committed").await;
    assert_eq!(bench.world.witness.calls_to("/do/send").len(), 1);

    register(&bench, |tool| tool["execute_on_approval"] = json!(false)).await;
    let ann = bench.client("approver", "ann").await;
    let session = agent.begin().await;
    let approval = pending(&agent, session).await;
    ann.post(&format!("/approvals/{approval}/approve"), json!({})).await.is(200);
    // A later approval of another tool is run meanwhile, so the proxy has looked since.
    let admin = bench.client("admin", "root").await;
    let mail = json!({"tier": "irreversible", "irreversibility_reason": "it is sent",
        "upstream": {"endpoint": bench.world.witness.url("/do/mail")}});
    admin.put("/tools/mail", mail).await.is(200);
    let other = agent.begin().await;
    let asked = agent.call(call(other, 1, "mail", json!({}))).await.is(202).body;
    let second = asked["approval_id"].as_str().unwrap();
    ann.post(&format!("/approvals/{second}/approve"), json!({})).await.is(200);
    wait_effect(&agent, other, "committed").await;
    assert_eq!(effect_of(&agent, session).await["state"], "approved");
    assert_eq!(bench.world.witness.calls_to("/do/send").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waits_to_be_asked_again_is_run_inline() {
    let bench = Bench::with_executor().await;
    register(&bench, |tool| tool["execute_on_approval"] = json!(false)).await;
    let agent = bench.agent().await;
    let ann = bench.client("approver", "ann").await;
    let session = agent.begin().await;
    let approval = pending(&agent, session).await;
    ann.post(&format!("/approvals/{approval}/approve"), json!({})).await.is(200);
    let asked = call(session, 1, "send", json!({"amount": 1}));
    let answered = agent.call(asked).await.is(200).body;
    assert_eq!(answered["executed_by"], "proxy", "{answered}");
}

/// Who an executor is, through a proxy of its own.
async fn refusals(bench: &Bench) -> Vec<String> {
    let agent = bench.agent().await;
    let executor = bench.client("executor", "proxy-2").await;
    let session = agent.begin().await;
    let mut codes = Vec::new();
    let granted = agent.call(call(session, 1, "charge", json!({}))).await.is(200).body;
    let effect = granted["effect_id"].as_str().unwrap().to_owned();
    let told = json!({"session_id": session, "result": 1});
    codes.push(executor.put(&format!("/effects/{effect}/commit"), told).await);
    let told = json!({"session_id": session, "error": "no"});
    codes.push(executor.put(&format!("/effects/{effect}/fail"), told).await);
    codes.push(executor.call(call(session, 2, "charge", json!({}))).await);
    codes.push(executor.call(call(Uuid::new_v4(), 1, "charge", json!({}))).await);
    codes.push(executor.post(&format!("/sessions/{session}/heartbeat"), json!({})).await);
    pending(&agent, going_on(&agent).await).await;
    let session = going_on(&agent).await;
    agent.call(call(session, 1, "wire", json!({}))).await.is(202);
    codes.push(executor.call(call(session, 1, "wire", json!({}))).await);
    codes.into_iter().map(|answer| answer.code().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_touches_approved_calls_of_upstream_tools_only() {
    let bench = bench().await;
    let codes = refusals(&bench).await;
    assert!(codes.iter().all(|code| code == "PERMISSION_DENIED"), "{codes:?}");

    // With the guard taken out the same requests get through, so it is the guard that refuses.
    let mut world = World::on(undolog_tests::world::Database::Shared(TestDb::new().await)).await;
    let off = vec![("UNDOLOG_GUARDS_OFF".to_owned(), "executor".to_owned())];
    world.add_engine(EngineOptions { environment: off, ..EngineOptions::default() }).await;
    world.add_worker(WorkerOptions::default()).await;
    let open = Bench::on(world, ProxyOptions::default()).await;
    register(&open, |_| {}).await;
    let codes = refusals(&open).await;
    assert!(codes.iter().any(|code| code != "PERMISSION_DENIED"), "{codes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_administrator_registers_an_endpoint() {
    let bench = bench().await;
    let agent = bench.agent().await;
    let tool = json!({"tier": "safe", "upstream": {"endpoint": "https://shop.example/x"}});
    agent.put("/tools/mine", tool.clone()).await.refused(403, "PERMISSION_DENIED");
    let admin = bench.client("admin", "root").await;
    let bad = json!({"tier": "safe", "upstream": {"endpoint": "https://shop.example/{result.x}"}});
    admin.put("/tools/mine", bad).await.refused(400, "INVALID_ARGUMENT");
    let made = admin.put("/tools/mine", tool).await.is(200).body;
    assert_eq!(made["tool"]["upstream"]["endpoint"], "https://shop.example/x");
    assert_eq!(made["tool"]["execute_on_approval"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_dies_in_a_call_leaves_an_unknown_effect_and_nobody_runs_it_again() {
    let mut bench = Bench::with_executor().await;
    register(&bench, |tool| tool["grant_lease_ms"] = json!(6_000)).await;
    let agent = bench.agent().await;
    let session = going_on(&agent).await;
    let _gate = bench.world.witness.hold("/do/pay");
    let asked = call(session, 1, "pay", json!({"amount": 1}));
    let request = agent.request(reqwest::Method::POST, "/mcp/tool_call").body(asked.to_string());
    let broken = tokio::spawn(request.send());
    bench.world.witness.wait_for("/do/pay", 1, SOON).await;
    bench.proxy.process.kill9();
    assert!(broken.await.unwrap().is_err());
    bench.proxy.start_again().await;
    within(Duration::from_secs(60), "the effect is unknown", || async {
        let effect = effect_of(&agent, session).await;
        if effect["state"] == "unknown" { Ok(()) } else { Err(effect["state"].clone()) }
    })
    .await;
    agent.call(asked).await.refused(409, "OUTCOME_UNKNOWN");
    assert_eq!(bench.world.witness.calls_to("/do/pay").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_stops_in_a_call_says_that_nobody_knows() {
    let world = World::start().await;
    let options = ProxyOptions {
        arguments: vec!["--grace-seconds".to_owned(), "1".to_owned()],
        ..ProxyOptions::default()
    };
    let mut bench = Bench::on(world, options).await;
    register(&bench, |_| {}).await;
    let agent = bench.agent().await;
    let session = going_on(&agent).await;
    let _gate = bench.world.witness.hold("/do/pay");
    let asked = call(session, 1, "pay", json!({"amount": 1}));
    let request = agent.request(reqwest::Method::POST, "/mcp/tool_call").body(asked.to_string());
    let waiting = tokio::spawn(request.send());
    bench.world.witness.wait_for("/do/pay", 1, SOON).await;
    bench.proxy.process.term();
    bench.proxy.process.wait_exit(SOON).await;
    let _answered_or_broken = waiting.await.unwrap();
    let state: String =
        sqlx::query_scalar("SELECT state::text FROM undolog_effect_log WHERE session_id = $1")
            .bind(session)
            .fetch_one(bench.world.pool())
            .await
            .unwrap();
    assert_eq!(state, "unknown");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_is_delivered_though_its_caller_s_key_ended_during_the_call() {
    let bench = bench().await;
    let (agent, reader) = (bench.agent().await, bench.client("operator", "op").await);
    let session = agent.begin().await;
    let gate = bench.world.witness.hold("/do/pay");
    let asked = call(session, 1, "pay", json!({"amount": 1}));
    let asking = tokio::spawn({
        let agent = agent.clone();
        async move { agent.call(asked).await }
    });
    bench.world.witness.wait_for("/do/pay", 1, SOON).await;
    sqlx::query(
        "UPDATE undolog_api_keys SET revoked_at = clock_timestamp() WHERE role::text = 'agent'",
    )
    .execute(bench.world.pool())
    .await
    .unwrap();
    eventually("the key is refused", || async {
        let answer = agent.get("/sessions").await;
        if answer.status == 401 { Ok(()) } else { Err(answer.text) }
    })
    .await;
    gate.open();
    wait_effect(&reader, session, "committed").await;
    asking.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_result_is_too_large_to_be_stored_is_committed_all_the_same() {
    let bench = bench().await;
    let agent = bench.agent().await;
    let session = agent.begin().await;
    // As a JSON text each of them is twice as long.
    let quotes = "\"".repeat(3_500_000);
    let answer = Act::Answer(200, Vec::new(), quotes);
    bench.world.witness.script(Script::always("/do/pay", answer));
    agent.call(call(session, 1, "pay", json!({"amount": 1}))).await.is(200);
    let effect = wait_effect(&agent, session, "committed").await;
    let shown = agent.get(&format!("/sessions/{session}")).await.is(200).body;
    assert_eq!(shown["session"]["state"], "active", "{shown} {effect}");
}
