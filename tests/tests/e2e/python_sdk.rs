//! Agents made with the Python SDK, as processes of their own that die, block and come back.

use std::time::Duration;

use serde_json::{Value, json};
use undolog_tests::run::{Process, Proxy, ProxyOptions, Spec};
use undolog_tests::witness::{Act, Script};
use undolog_tests::world::{Agent, ToolSpec};
use undolog_tests::{SOON, World, eventually, python, within};
use uuid::Uuid;

use super::humans::swept;

/// The session's lease, as the SDK begins it.
const LEASE: Duration = Duration::from_secs(300);
/// A grant's lease when its caller heartbeats, and a little.
const GRANT_LEASE: Duration = Duration::from_secs(65);
/// How long the SDK waits between two heartbeats of a running call.
const HEARTBEAT: Duration = Duration::from_secs(15);
const HOUR: Duration = Duration::from_secs(3600);

/// A world with a proxy, and one session of a Python agent.
struct Bench {
    proxy: Proxy,
    world: World,
    key: String,
    session: Uuid,
}

impl Bench {
    async fn start() -> Self {
        let world = World::start_private().await;
        world.tool(ToolSpec::compensable("customer")).await;
        // Its undo needs no result: it is found although nobody heard the answer.
        let charge = ToolSpec::compensable("charge").body("endpoint", json!("/undo/charge"));
        world.tool(charge.body("arg_mapping", json!({"id": "{args.id}"}))).await;
        world.tool(ToolSpec::irreversible("wire")).await;
        let proxy = Proxy::start(&world.engines[0].grpc_url(), ProxyOptions::default()).await;
        let key = world.org.key(world.pool(), "agent", "agent-1").await;
        Self { proxy, world, key, session: Uuid::new_v4() }
    }

    /// Starts the agent.
    fn spawn(&self, verb: &str, more: &[&str], variables: &[(&str, &str)]) -> Process {
        let script = undolog_tests::pg::workspace_root().join("tests/python/sdk_agent.py");
        let mut spec = Spec::new("python-agent", python::with_sdk())
            .args([script])
            .args([verb, &self.session.to_string()])
            .args(more.iter().copied())
            .env("UNDOLOG_PROXY_URL", self.proxy.url(""))
            .env("UNDOLOG_API_KEY", &self.key)
            .env("WITNESS", self.world.witness.url(""))
            .env("ORG", &self.world.org.slug)
            .env("NO_PROXY", "127.0.0.1");
        for (name, value) in variables {
            spec = spec.env(*name, *value);
        }
        spec.spawn()
    }

    /// Runs the agent to its end; what it told.
    async fn run(&self, verb: &str, more: &[&str], variables: &[(&str, &str)]) -> Value {
        let mut agent = self.spawn(verb, more, variables);
        told(&mut agent).await
    }

    /// The session as the operator sees it.
    async fn seen(&self) -> Agent {
        Agent::of_session(self.world.admin().await, &self.world.witness, self.session)
    }

    async fn state(&self) -> String {
        let shown = self.seen().await.show().await.unwrap();
        shown.session.unwrap().state
    }

    async fn effect_states(&self) -> Vec<(String, String)> {
        sqlx::query_as(
            "SELECT tool_name, state::text FROM undolog_effect_log WHERE session_id = $1
             ORDER BY step_index",
        )
        .bind(self.session)
        .fetch_all(self.world.pool())
        .await
        .unwrap()
    }

    async fn wait_effects(&self, expected: &[(&str, &str)]) {
        eventually(&format!("effects are {expected:?}"), || async {
            let now = self.effect_states().await;
            let pairs: Vec<_> = now.iter().map(|(t, s)| (t.as_str(), s.as_str())).collect();
            if pairs == expected { Ok(()) } else { Err(now) }
        })
        .await;
    }

    /// When the lease of the running call, and the session's, were last renewed.
    async fn renewals(&self) -> (String, String) {
        sqlx::query_as(
            "SELECT e.lease_renewed_at::text, s.lease_renewed_at::text
             FROM undolog_effect_log e JOIN undolog_sessions s USING (session_id)
             WHERE e.session_id = $1 AND e.state = 'executing'",
        )
        .bind(self.session)
        .fetch_one(self.world.pool())
        .await
        .unwrap()
    }

    async fn approve(&self, approval_id: &str) {
        let key = self.world.org.key(self.world.pool(), "approver", "ann").await;
        let told = self.run("decide", &[approval_id], &[("UNDOLOG_API_KEY", &key)]).await;
        assert_eq!(told, json!({"approved": approval_id}));
    }
}

/// What an agent told, once it has ended well.
async fn told(agent: &mut Process) -> Value {
    let status = agent.wait_exit(SOON).await;
    let output = agent.output();
    assert!(status.success(), "{status}: {output}");
    let line = output.lines().find(|line| line.starts_with('{'));
    serde_json::from_str(line.unwrap_or_else(|| panic!("it told nothing: {output}"))).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_python_agent_killed_inside_a_tool_is_rolled_back_after_its_lease() {
    let mut bench = Bench::start().await;
    bench.world.witness.script(Script::once("/do/charge", Act::AppliedThenHang));
    let mut agent = bench.spawn("two_calls", &[], &[]);
    bench.world.witness.wait_for("/do/charge", 1, SOON).await;
    agent.kill9();

    // Its grant is lost soon, its session is not: a restart fits into the lease.
    bench.world.pass(GRANT_LEASE).await;
    bench.wait_effects(&[("customer", "committed"), ("charge", "unknown")]).await;
    assert_eq!(bench.state().await, "active");
    assert!(bench.world.witness.calls_to("/undo/").is_empty());

    bench.world.pass(LEASE).await;
    let seen = bench.seen().await;
    within(SOON, "the rollback has begun", || async {
        let state = bench.state().await;
        if state == "compensating" { Ok(()) } else { Err(state) }
    })
    .await;
    // What is unknown may still run, for as long as a grant lasts.
    bench.world.pass(GRANT_LEASE).await;
    seen.wait_state("compensated", SOON).await;
    assert!(bench.world.witness.objects().is_empty(), "{:?}", bench.world.witness.objects());
    let undone = bench.world.witness.calls_to("/undo/");
    assert_eq!(undone.len(), 2, "{undone:?}");
    assert_eq!(undone[0].path, "/undo/charge");
    assert_eq!(undone[1].path, "/undo/customer/customer-1");
}

/// The tool blocks the event loop for two and a half minutes. They pass as often as a heartbeat has
/// arrived: heartbeats come every half second, and each time the clock goes on by what lies between
/// two of them in earnest. `UNDOLOG_TEST_BLOCK_SECONDS=130` lets 130 real seconds pass instead.
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_blocks_for_minutes_is_not_rolled_back() {
    let mut bench = Bench::start().await;
    let gate = bench.world.witness.hold("/do/charge");
    let real = std::env::var("UNDOLOG_TEST_BLOCK_SECONDS").ok().and_then(|s| s.parse().ok());
    let beat: &[(&str, &str)] = if real.is_some() { &[] } else { &[("HEARTBEAT_SECONDS", "0.5")] };
    let mut agent = bench.spawn("two_calls", &[], beat);
    bench.world.witness.wait_for("/do/charge", 1, SOON).await;
    if let Some(seconds) = real {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    } else {
        for _ in 0..10 {
            let before = bench.renewals().await;
            bench.world.pass(HEARTBEAT).await;
            eventually("the grant and the session are renewed", || async {
                let now = bench.renewals().await;
                if now.0 > before.0 && now.1 > before.1 {
                    Ok(())
                } else {
                    Err((before.clone(), now))
                }
            })
            .await;
        }
    }
    assert_eq!(bench.state().await, "active");
    gate.open();
    assert_eq!(told(&mut agent).await["charge"]["id"], "charge-1");
    bench.wait_effects(&[("customer", "committed"), ("charge", "committed")]).await;
    assert_eq!(bench.state().await, "completed");
    assert!(bench.world.witness.calls_to("/undo/").is_empty());
    let doubts: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM undolog_effect_events WHERE session_id = $1 AND to_state = 'unknown'",
    )
    .bind(bench.session)
    .fetch_one(bench.world.pool())
    .await
    .unwrap();
    assert_eq!(doubts, 0, "the call was in doubt while it ran");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_ended_for_an_approval_is_resumed_by_another_the_day_after() {
    let mut bench = Bench::start().await;
    let waiting = bench.run("pay", &[], &[]).await;
    let approval = waiting["waiting"].as_str().unwrap_or_else(|| panic!("{waiting}")).to_owned();
    // Asked again by a new process it is the same request.
    assert_eq!(bench.run("pay", &[], &[]).await, waiting);
    bench.approve(&approval).await;
    bench.world.pass(23 * HOUR).await;
    swept(&bench.world, "sessions").await;
    let paid = bench.run("pay", &[], &[]).await;
    assert_eq!(paid["customer"]["id"], "customer-1", "{paid}");
    assert_eq!(paid["wire"]["id"], "wire-1", "{paid}");
    assert_eq!(bench.world.witness.calls_to("/do/").len(), 2, "each ran once");
    assert_eq!(bench.state().await, "completed");
    bench.wait_effects(&[("customer", "committed"), ("wire", "committed")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_comes_back_too_late_finds_its_session_undone() {
    let mut bench = Bench::start().await;
    let waiting = bench.run("pay", &[], &[]).await;
    bench.approve(waiting["waiting"].as_str().unwrap()).await;
    bench.world.pass(24 * HOUR + LEASE).await;
    bench.seen().await.wait_state("compensated", SOON).await;
    assert!(bench.world.witness.objects().is_empty(), "the customer is gone by itself");
    let late = bench.run("pay", &[], &[]).await;
    assert_eq!(late["error"], "SessionOverError", "{late}");
    assert_eq!(late["retryable"], false);
    assert!(bench.world.witness.calls_to("/do/wire").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_decide_what_an_agent_may() {
    let bench = Bench::start().await;
    let waiting = bench.run("pay", &[], &[]).await;
    let approval = waiting["waiting"].as_str().unwrap();
    // The agent's own key approves nothing.
    let told = bench.run("decide", &[approval], &[]).await;
    let refused =
        json!({"error": "UnauthorizedError", "code": "PERMISSION_DENIED", "retryable": false});
    assert_eq!(told, refused);
    for key in ["ulk_00000000000000000000000000000000000000000000000", "nonsense", ""] {
        let told = bench.run("pay", &[], &[("UNDOLOG_API_KEY", key)]).await;
        assert_eq!(told["error"], "UnauthorizedError", "{key:?}: {told}");
        assert_eq!(told["code"], "UNAUTHENTICATED", "{key:?}: {told}");
    }
    // Another agent's key does not reach this session.
    let other = bench.world.org.key(bench.world.pool(), "agent", "agent-2").await;
    let told = bench.run("pay", &[], &[("UNDOLOG_API_KEY", &other)]).await;
    assert_eq!(told["retryable"], false, "{told}");
    assert!(told["error"].is_string(), "{told}");
    assert!(bench.world.witness.calls_to("/do/wire").is_empty());
    bench.approve(approval).await;
    assert_eq!(bench.run("pay", &[], &[]).await["wire"]["id"], "wire-1");
}
