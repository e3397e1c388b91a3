//! The wire of the design, row by row.

use reqwest::Method;
use serde_json::{Value, json};
use undolog_tests::run::ProxyOptions;
use undolog_tests::world::ToolSpec;
use undolog_tests::{SOON, eventually};
use uuid::Uuid;

use super::bench::{Bench, Http};

fn call(session: Uuid, step: u32, tool: &str, args: Value) -> Value {
    json!({"session_id": session, "tool_name": tool, "step_index": step, "args": args})
}

#[tokio::test(flavor = "multi_thread")]
async fn executed_means_that_the_caller_runs_it_now_and_replayed_carries_the_result() {
    let bench = Bench::start().await;
    let agent = bench.agent().await;
    let session = Uuid::new_v4();
    let asked = call(session, 1, "charge", json!({"amount": 5}));

    let executed = agent.call(asked.clone()).await.is(200).body;
    assert_eq!(executed["status"], "executed");
    assert_eq!(executed["executed_by"], "client");
    assert_eq!(executed["attempt"], 1);
    assert!(executed["lease_expires_at"].is_string(), "{executed}");
    let effect = executed["effect_id"].as_str().unwrap().to_owned();

    let busy = agent.call(asked.clone()).await.refused(409, "IN_PROGRESS");
    assert_eq!(busy.headers["retry-after"], "1");
    assert_eq!(busy.body["details"]["effect_id"], effect);

    let result = json!({"success": true, "output": {"id": "c-1"}, "error": null, "duration_ms": 7});
    let told = json!({"session_id": session, "attempt": 1, "result": result});
    let path = format!("/effects/{effect}/commit");
    let reported = agent.put(&path, told.clone()).await.is(200).body;
    assert_eq!(reported, json!({"effect_id": effect, "status": "committed"}));
    agent.put(&path, told).await.is(200);
    let other = json!({"session_id": session, "result": {"success": true, "output": 2}});
    agent.put(&path, other).await.refused(409, "RESULT_CONFLICT");

    let replayed = agent.call(asked).await.is(200).body;
    let expected = json!({"status": "replayed", "effect_id": effect, "result": result});
    assert_eq!(replayed, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_approval_is_202_and_the_same_call_runs_after_it() {
    let bench = Bench::start().await;
    let agent = bench.agent().await;
    let ann = bench.client("approver", "ann").await;
    let session = Uuid::new_v4();
    let asked = call(session, 1, "wire", json!({"to": "x"}));

    let pending = agent.call(asked.clone()).await.is(202);
    assert_eq!(pending.headers["retry-after"], "5");
    assert_eq!(pending.body["status"], "pending_approval");
    assert_eq!(pending.body["retry_after"], 5);
    let approval = pending.body["approval_id"].as_str().unwrap().to_owned();
    let again = agent.call(asked.clone()).await.is(202).body;
    assert_eq!(again["approval_id"], approval.as_str());

    let listed = ann.get("/approvals").await.is(200).body;
    assert_eq!(listed["approvals"][0]["approval_id"], approval.as_str());
    assert_eq!(listed["approvals"][0]["proposed_args"], json!({"to": "x"}));
    agent
        .post(&format!("/approvals/{approval}/approve"), json!({}))
        .await
        .refused(403, "PERMISSION_DENIED");
    let approved = ann.post(&format!("/approvals/{approval}/approve"), json!({})).await.is(200);
    assert_eq!(approved.body["args"], json!({"to": "x"}));
    ann.post(&format!("/approvals/{approval}/reject"), json!({}))
        .await
        .refused(409, "APPROVAL_ALREADY_RESOLVED");
    let shown = ann.get(&format!("/approvals/{approval}")).await.is(200).body;
    assert_eq!(shown["approval"]["state"], "approved");

    let executed = agent.call(asked).await.is(200).body;
    assert_eq!(executed["status"], "executed");
    assert_eq!(executed["approval_id"], approval.as_str());
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_revoked_and_edited_approvals() {
    let bench = Bench::start().await;
    let agent = bench.agent().await;
    let ann = bench.client("approver", "ann").await;
    let ask = async |session: Uuid| {
        let asked = call(session, 1, "wire", json!({"to": "x"}));
        let pending = agent.call(asked.clone()).await.is(202).body;
        (asked, pending["approval_id"].as_str().unwrap().to_owned())
    };

    let (asked, approval) = ask(Uuid::new_v4()).await;
    let rejected = ann.post(&format!("/approvals/{approval}/reject"), json!({"note": "no"})).await;
    assert_eq!(rejected.is(200).body["state"], "rejected");
    agent.call(asked).await.refused(409, "APPROVAL_REJECTED");

    let (asked, approval) = ask(Uuid::new_v4()).await;
    ann.post(&format!("/approvals/{approval}/approve"), json!({})).await.is(200);
    ann.post(&format!("/approvals/{approval}/revoke"), json!({"note": "oh"})).await.is(200);
    agent.call(asked).await.refused(409, "APPROVAL_REVOKED");

    let (mut asked, approval) = ask(Uuid::new_v4()).await;
    let edited = json!({"approved_args": {"to": "y"}});
    ann.post(&format!("/approvals/{approval}/approve"), edited).await.is(200);
    agent.call(asked.clone()).await.refused(409, "ARGS_MODIFIED");
    asked["accepts_approved_args"] = json!(true);
    let executed = agent.call(asked).await.is(200).body;
    assert_eq!(executed["approved_args"], json!({"to": "y"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_name_the_session_and_the_organisation_and_empty_ones_count_as_none() {
    let bench = Bench::start().await;
    let agent = bench.agent().await;
    let session = Uuid::new_v4();
    let body = json!({"tool_name": "charge", "step_index": 1, "args": {}}).to_string();
    let post = |org: &'static str, session: String, body: &str| {
        agent
            .request(Method::POST, "/mcp/tool_call")
            .header("X-UndoLog-Org-Id", org)
            .header("X-UndoLog-Session-Id", session)
            .body(body.to_owned())
    };
    agent.send(post("", session.to_string(), &body)).await.is(200);
    let named = json!({"session_id": session, "tool_name": "charge", "step_index": 2, "args": {}});
    agent.send(post("acme", String::new(), &named.to_string())).await.is(200);
    let other = Uuid::new_v4().to_string();
    agent.send(post("", other, &named.to_string())).await.refused(400, "INVALID_ARGUMENT");
    agent
        .send(post("globex", String::new(), &named.to_string()))
        .await
        .refused(403, "ORG_MISMATCH");
    agent.send(post("", String::new(), &body)).await.refused(400, "INVALID_ARGUMENT");

    Http::new(&bench.proxy.url(""), None).call(named.clone()).await.refused(401, "UNAUTHENTICATED");
    let bearer = Http::new(&bench.proxy.url(""), None);
    let key = agent.key.clone().unwrap();
    let request = bearer.request(Method::GET, "/tools").bearer_auth(key);
    bearer.send(request).await.is(200);
    let foreign = bench.client("agent", "agent-2").await;
    let path = format!("/sessions/{session}");
    foreign.get(&path).await.refused(404, "SESSION_NOT_FOUND");
}

#[tokio::test(flavor = "multi_thread")]
async fn json_passes_through_as_it_was_written() {
    let bench = Bench::start().await;
    let agent = bench.agent().await;
    let session = Uuid::new_v4();
    let args = r#"{"b":1.50,"a":[12345678901234567890,"\u00e9\ud83d\ude00"]}"#;
    let body = format!(
        r#"{{"session_id":"{session}","tool_name":"charge","step_index":1,"args":{args}}}"#
    );
    let request = agent.request(Method::POST, "/mcp/tool_call").body(body.clone());
    let executed = agent.send(request).await.is(200).body;
    let effect = executed["effect_id"].as_str().unwrap();
    let output = r#"{"id":"c","big":1e400,"z":-0.0,"dup":1,"dup":2,"lone":"\ud800"}"#;
    let told =
        format!(r#"{{"session_id":"{session}","result":{{"success":true,"output":{output}}}}}"#);
    let request = agent.request(Method::PUT, &format!("/effects/{effect}/commit")).body(told);
    agent.send(request).await.is(200);
    let request = agent.request(Method::POST, "/mcp/tool_call").body(body);
    let replayed = agent.send(request).await.is(200);
    assert!(replayed.text.contains(output), "{}", replayed.text);
    let listed = agent.get(&format!("/sessions/{session}/replay")).await.is(200);
    assert!(listed.text.contains(output), "{}", listed.text);

    // A committed value that has not the form of a result is the output, whole.
    let asked = call(session, 2, "charge", json!({}));
    let executed = agent.call(asked.clone()).await.is(200).body;
    let path = format!("/effects/{}/commit", executed["effect_id"].as_str().unwrap());
    agent.put(&path, json!({"session_id": session, "result": {"id": 7}})).await.is(200);
    let replayed = agent.call(asked).await.is(200).body;
    assert_eq!(replayed["result"]["output"], json!({"id": 7}));
    assert_eq!(replayed["result"]["success"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_keep_their_meaning() {
    let bench = Bench::start().await;
    let agent = bench.agent().await;
    let session = agent.begin().await;
    let ask = async |body: Value| agent.call(body).await;
    ask(call(session, 1, "nope", json!({}))).await.refused(404, "TOOL_NOT_REGISTERED");
    ask(call(session, 1, "charge", json!([1]))).await.refused(422, "ARGS_INVALID");
    let mut signed = call(session, 1, "charge", json!({}));
    signed["signature"] = json!("0".repeat(64));
    ask(signed).await.refused(422, "SIGNATURE_MISMATCH");
    let mut keyed = call(session, 1, "charge", json!({}));
    keyed["step_key"] = json!("k");
    ask(keyed).await.refused(422, "STEP_INVALID");
    ask(call(session, 1, "charge", json!({"a": 1}))).await.is(200);
    ask(call(session, 1, "charge", json!({"a": 2}))).await.refused(409, "STEP_CONFLICT");
    let path = format!("/effects/{}/commit", Uuid::now_v7());
    let told = json!({"session_id": session, "result": 1});
    agent.put(&path, told).await.refused(404, "EFFECT_NOT_FOUND");
    agent.get("/approvals/x").await.refused(400, "INVALID_ARGUMENT");
    agent.get(&format!("/approvals/{}", Uuid::new_v4())).await.refused(404, "APPROVAL_NOT_FOUND");
    agent.get("/dead-letters").await.refused(403, "PERMISSION_DENIED");
    agent.get("/nowhere").await.refused(404, "INVALID_ARGUMENT");
    let deleted = agent.send(agent.request(Method::DELETE, "/tools")).await;
    let deleted = deleted.refused(405, "INVALID_ARGUMENT");
    assert!(deleted.headers["allow"].to_str().unwrap().contains("GET"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_safe_tool_is_executed_and_reported_without_an_effect() {
    let bench = Bench::start().await;
    let agent = bench.agent().await;
    let session = Uuid::new_v4();
    let executed = agent.call(call(session, 1, "look", json!({}))).await.is(200).body;
    assert_eq!(
        (executed["status"].as_str(), executed["effect_id"].as_str()),
        (Some("executed"), Some(""))
    );
    agent.put("/effects//commit", json!({"result": 1})).await.is(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_call_rolls_its_session_back_and_unknown_waits() {
    let bench = Bench::start().await;
    let agent = bench.agent().await;
    let session = agent.begin().await;
    let executed = agent.call(call(session, 1, "charge", json!({}))).await.is(200).body;
    let effect = executed["effect_id"].as_str().unwrap();
    let told = json!({"session_id": session, "error": "no", "effect": "not_applied"});
    let reported = agent.put(&format!("/effects/{effect}/fail"), told).await.is(200).body;
    assert_eq!(reported["status"], "failed");
    let path = format!("/sessions/{session}");
    eventually("the session is compensated", || async {
        let shown = agent.get(&path).await.is(200).body;
        let state = shown["session"]["state"].as_str().unwrap().to_owned();
        if state == "compensated" { Ok(()) } else { Err(state) }
    })
    .await;
    agent.call(call(session, 2, "charge", json!({}))).await.refused(409, "SESSION_COMPENSATED");

    let session = agent.begin().await;
    let executed = agent.call(call(session, 1, "charge", json!({}))).await.is(200).body;
    let effect = executed["effect_id"].as_str().unwrap();
    let told = json!({"session_id": session, "error": "lost", "effect": "unknown"});
    agent.put(&format!("/effects/{effect}/fail"), told).await.is(200);
    let shown = agent.get(&format!("/sessions/{session}/effects")).await.is(200).body;
    assert_eq!(shown["effects"][0]["state"], "unknown");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_call_hears_the_decision() {
    let bench = Bench::start().await;
    let agent = bench.agent().await;
    let ann = bench.client("approver", "ann").await;
    let session = Uuid::new_v4();
    let mut asked = call(session, 1, "wire", json!({}));
    let pending = agent.call(asked.clone()).await.is(202).body;
    asked["wait_ms"] = json!(20_000);
    let path = format!("/approvals/{}/approve", pending["approval_id"].as_str().unwrap());
    let (executed, _) = tokio::join!(agent.call(asked), ann.post(&path, json!({})));
    assert_eq!(executed.is(200).body["status"], "executed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_asks_too_fast_hears_429_and_when_to_come_back() {
    let slow = ["--rate-per-second", "1", "--rate-burst", "3"].map(str::to_owned);
    let bench =
        Bench::with(|_| ProxyOptions { arguments: slow.to_vec(), ..ProxyOptions::default() }).await;
    let agent = bench.agent().await;
    let mut refused = None;
    for _ in 0..10 {
        let answer = agent.get("/tools").await;
        if answer.status.as_u16() == 429 {
            refused = Some(answer.refused(429, "RATE_LIMITED"));
            break;
        }
    }
    assert_eq!(refused.expect("a refusal").headers["retry-after"], "1");
    // Another key has its own rate, and probes have none.
    bench.client("agent", "agent-2").await.get("/tools").await.is(200);
    agent.get("/health").await.is(200);
    let metrics = agent.get("/metrics").await.is(200).text;
    assert!(metrics.contains("undolog_http_requests_total"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_engine_the_answer_is_503_and_the_proxy_is_not_ready() {
    let mut bench = Bench::start().await;
    let agent = bench.agent().await;
    agent.get("/ready").await.is(200);
    bench.world.engines[0].process.kill9();
    let session = Uuid::new_v4();
    let refused = agent.call(call(session, 1, "charge", json!({}))).await;
    assert_eq!(refused.refused(503, "UNAVAILABLE").headers["retry-after"], "1");
    agent.get("/health").await.is(200);
    undolog_tests::within(SOON, "the proxy is not ready", || async {
        let answer = agent.get("/ready").await;
        if answer.status.as_u16() == 503 { Ok(()) } else { Err(answer.text) }
    })
    .await;
    bench.world.engines[0].start_again().await;
    bench.proxy.wait_ready().await;
    agent.call(call(session, 1, "charge", json!({}))).await.is(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_and_compensations_are_registered_and_shown() {
    let bench = Bench::start().await;
    let admin = bench.client("admin", "root").await;
    let undo = json!({"fn_body": {"kind": "http", "method": "POST",
        "endpoint": "https://shop.example/undo/{result.id}"}, "open": true});
    let made = admin.put("/compensations/undo_pay", undo.clone()).await.is(200).body;
    assert_eq!(made["created"], true);
    admin.put("/compensations/undo_pay", undo).await.is(200);
    let agent = bench.agent().await;
    let pay = json!({"tier": "compensable", "compensation_ref": "undo_pay",
        "tool_schema": {"type": "object", "properties": {"n": {"maximum": 1.50}}}});
    let made = agent.put("/tools/pay", pay.clone()).await.is(200).body;
    assert_eq!(
        (made["created"].as_bool(), made["tool"]["tier"].as_str()),
        (Some(true), Some("compensable"))
    );
    assert_eq!(agent.put("/tools/pay", pay).await.is(200).body["created"], false);
    let shown = agent.get("/tools/pay?version=1.0.0").await.is(200).body;
    assert_eq!(shown["tool"]["compensation_ref"], "undo_pay");
    agent.get("/tools/nope").await.refused(404, "TOOL_NOT_REGISTERED");
    let shown = agent.get("/compensations/undo_pay").await.is(200).body;
    assert_eq!(shown["compensation"]["fn_body"]["method"], "POST");
    let names: Vec<String> = agent.get("/tools?page_size=2").await.is(200).body["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["tool_name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names.len(), 2);
    let safe = json!({"tier": "safe"});
    agent.put("/tools/charge", safe).await.refused(403, "TIER_LOWERED");
    bench.world.tool(ToolSpec::safe("other")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_proxy_keeps_no_caller_waiting() {
    let mut bench = Bench::start().await;
    let agent = bench.agent().await;
    let session = Uuid::new_v4();
    let mut asked = call(session, 1, "wire", json!({}));
    agent.call(asked.clone()).await.is(202);
    asked["wait_ms"] = json!(25_000);
    let waiting = tokio::spawn(async move { agent.call(asked).await });
    // The call waits in the engine before the proxy is told to stop.
    let url = bench.world.engines[0].http_url("/metrics");
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    eventually("a call waits", || async {
        let text = client.get(&url).send().await.unwrap().text().await.unwrap();
        let waits = text.lines().any(|line| line == "undolog_waiting_calls 1");
        if waits { Ok(()) } else { Err(text.lines().count()) }
    })
    .await;
    bench.proxy.process.term();
    let refused = waiting.await.unwrap().refused(503, "UNAVAILABLE");
    assert_eq!(refused.headers["retry-after"], "1");
    let status = bench.proxy.process.wait_exit(SOON).await;
    assert!(status.success(), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn browsers_may_call_only_from_listed_origins() {
    let bench = Bench::start().await;
    let agent = bench.agent().await;
    let preflight = |agent: &Http, origin: &'static str| {
        agent
            .request(Method::OPTIONS, "/sessions")
            .header("Origin", origin)
            .header("Access-Control-Request-Method", "POST")
            .header("Access-Control-Request-Headers", "x-api-key")
    };
    let shut = agent.send(preflight(&agent, "https://console.example")).await;
    assert!(shut.headers.get("access-control-allow-origin").is_none());
    let listed = ["--cors-origins", "https://console.example"].map(str::to_owned);
    let options = ProxyOptions { arguments: listed.to_vec(), ..ProxyOptions::default() };
    let engine = bench.world.engines[0].grpc_url();
    let open = undolog_tests::run::Proxy::start(&engine, options).await;
    let agent = Http { base: open.url(""), ..agent };
    let allowed = agent.send(preflight(&agent, "https://console.example")).await.is(200);
    assert_eq!(allowed.headers["access-control-allow-origin"], "https://console.example");
    let other = agent.send(preflight(&agent, "https://evil.example")).await;
    assert!(other.headers.get("access-control-allow-origin").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_says_where_a_decision_came_from() {
    let mut world = undolog_tests::World::without_servers().await;
    let arguments = ["--trusted-proxies", "127.0.0.0/8"].map(str::to_owned).to_vec();
    let options = undolog_tests::run::EngineOptions { arguments, ..Default::default() };
    world.add_engine(options).await;
    let forwarders = ["--trusted-forwarders", "127.0.0.1"].map(str::to_owned).to_vec();
    let options = ProxyOptions { arguments: forwarders, ..ProxyOptions::default() };
    let bench = Bench::on(world, options).await;
    let (agent, ann) = (bench.agent().await, bench.client("approver", "ann").await);
    let session = Uuid::new_v4();
    let decide = async |step: u32, forwarded: Option<&str>| {
        let asked = agent.call(call(session, step, "wire", json!({"n": step}))).await.is(202).body;
        let path = format!("/approvals/{}", asked["approval_id"].as_str().unwrap());
        let mut request = ann.request(reqwest::Method::POST, &format!("{path}/approve"));
        // A client that names itself to the engine is not believed.
        request = request.header("x-undolog-client-ip", "192.0.2.66");
        if let Some(forwarded) = forwarded {
            request = request.header("x-forwarded-for", forwarded);
        }
        ann.send(request.body("{}")).await.is(200);
        let shown = ann.get(&path).await.is(200).body;
        shown["events"][0]["actor_ip"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(decide(1, None).await, "127.0.0.1");
    assert_eq!(decide(2, Some("203.0.113.5, 198.51.100.7")).await, "198.51.100.7");
}
