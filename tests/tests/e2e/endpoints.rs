//! What an endpoint answers decides how often it is called, and what a human is told.

use std::time::Duration;

use serde_json::json;
use undolog_proto::v1::{FailedEffect, GetSessionResponse};
use undolog_tests::witness::{Act, Call, Script};
use undolog_tests::world::{Agent, ToolSpec};
use undolog_tests::{SOON, World};

const BACKOFF_MS: u32 = 150;

/// A session with one effect, whose compensation meets `act`; answers when the session ended.
struct Met {
    world: World,
    agent: Agent,
}

impl Met {
    async fn begin(tool: ToolSpec, scripts: Vec<Script>) -> Self {
        let world = World::start().await;
        world.tool(tool).await;
        let mut agent = world.agent().await;
        agent.call("charge", &json!({"n": 1})).await;
        for script in scripts {
            world.witness.script(script);
        }
        agent.rollback().await.unwrap();
        Self { world, agent }
    }

    async fn end(&self, state: &str) -> (GetSessionResponse, Vec<Call>) {
        let shown = self.agent.wait_state(state, SOON).await;
        self.world.rollback_check(self.agent.session).await;
        (shown, self.world.witness.calls_to("/undo/"))
    }
}

fn charge() -> ToolSpec {
    ToolSpec::compensable("charge").retries(3, BACKOFF_MS)
}

async fn halts(tool: ToolSpec, scripts: Vec<Script>, reason: &str) -> (String, Vec<Call>) {
    let met = Met::begin(tool, scripts).await;
    let (shown, calls) = met.end("halted").await;
    assert_eq!(shown.dead_letters.len(), 1, "{:?}", shown.dead_letters);
    assert_eq!(shown.dead_letters[0].reason, reason);
    (shown.dead_letters[0].detail.clone(), calls)
}

/// The n-th retry comes no earlier than backoff · 2^(n−1) after the call before it.
fn assert_spaced(calls: &[Call]) {
    for (n, pair) in calls.windows(2).enumerate() {
        let gap = pair[1].at - pair[0].at;
        let floor = Duration::from_millis(u64::from(BACKOFF_MS) << n);
        assert!(gap >= floor, "retry {} came after {gap:?}, not {floor:?}", n + 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn status_500_is_called_once_and_max_retries_times_more() {
    let script = Script::always("/undo/", Act::Status(500));
    let (detail, calls) = halts(charge(), vec![script], "EXHAUSTED").await;
    assert_eq!(calls.len(), 4);
    assert!(detail.contains("500"), "{detail}");
    assert_spaced(&calls);
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_are_counted_and_spaced_across_worker_restarts() {
    let script = Script::always("/undo/", Act::Status(503));
    let mut met = Met::begin(charge(), vec![script]).await;
    for count in 1..=3 {
        met.world.witness.wait_for_answers("/undo/", count, SOON).await;
        let undo = "SELECT count(*) FROM undolog_undo_attempts WHERE finished_at IS NOT NULL";
        undolog_tests::eventually("the outcome is written", || async {
            let done: i64 = sqlx::query_scalar(undo).fetch_one(met.world.pool()).await.unwrap();
            if done >= count as i64 { Ok(()) } else { Err(done) }
        })
        .await;
        met.world.workers[0].process.kill9();
        met.world.workers[0].start_again().await;
    }
    let (shown, calls) = met.end("halted").await;
    assert_eq!(calls.len(), 4, "{:?}", shown.undo_stack);
    assert_spaced(&calls);
}

#[tokio::test(flavor = "multi_thread")]
async fn status_400_is_called_once() {
    let script = Script::always("/undo/", Act::Status(400));
    let (detail, calls) = halts(charge(), vec![script], "PERMANENT").await;
    assert_eq!(calls.len(), 1);
    assert!(detail.contains("400"), "{detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_means_done_is_done() {
    let script = Script::always("/undo/", Act::Status(410));
    let met = Met::begin(charge().body("done_statuses", json!([404, 410])), vec![script]).await;
    let (_, calls) = met.end("compensated").await;
    assert_eq!(calls.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_after_is_waited_for_and_not_counted() {
    let script = Script::times("/undo/", 2, Act::RetryAfter(429, 1));
    let met = Met::begin(charge().retries(0, BACKOFF_MS), vec![script]).await;
    let (shown, calls) = met.end("compensated").await;
    assert_eq!(calls.len(), 3);
    for pair in calls.windows(2) {
        assert!(pair[1].at - pair[0].at >= Duration::from_secs(1), "Retry-After was not kept");
    }
    assert_eq!(shown.undo_stack[0].retry_count, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_does_not_exist_is_retried_then_told() {
    let tool = charge().body("endpoint", json!("http://no-such-host.invalid:80/undo"));
    let (detail, _) = halts(tool, Vec::new(), "EXHAUSTED").await;
    assert!(detail.contains("could not be resolved"), "{detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_connection_is_retried_then_told() {
    let tool = charge().body("endpoint", json!("http://127.0.0.1:1/undo"));
    halts(tool, Vec::new(), "EXHAUSTED").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tls_error_is_final() {
    let world = World::start().await;
    let endpoint = world.witness.url("/undo/{result.id}").replace("http://", "https://");
    world.tool(charge().body("endpoint", json!(endpoint))).await;
    let mut agent = world.agent().await;
    agent.call("charge", &json!({"n": 1})).await;
    agent.rollback().await.unwrap();
    let shown = agent.wait_state("halted", SOON).await;
    assert_eq!(shown.dead_letters[0].reason, "PERMANENT", "{:?}", shown.dead_letters);
    world.rollback_check(agent.session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_answer_is_cut_and_final() {
    let (_, calls) =
        halts(charge(), vec![Script::always("/undo/", Act::Endless)], "PERMANENT").await;
    assert_eq!(calls.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_not_followed() {
    let script = Script::always("/undo/", Act::Redirect("/do/elsewhere".to_owned()));
    let met = Met::begin(charge(), vec![script]).await;
    let (shown, calls) = met.end("halted").await;
    assert_eq!(shown.dead_letters[0].reason, "PERMANENT");
    assert_eq!(calls.len(), 1);
    assert!(met.world.witness.calls_to("/do/elsewhere").is_empty(), "the redirect was followed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_is_asked_for_again_with_the_same_key() {
    let script = Script::once("/undo/", Act::AppliedThenClose);
    let met = Met::begin(charge(), vec![script]).await;
    let (_, calls) = met.end("compensated").await;
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0].key(), calls[1].key());
    assert!(calls[0].applied && !calls[1].applied, "the compensation was applied twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_after_a_lost_answer_is_tried_again() {
    let tool = charge().body("timeout_ms", json!(400)).body("done_statuses", json!([404]));
    let scripts = vec![
        Script::times("/undo/", 2, Act::Status(409)),
        Script::once("/undo/", Act::AppliedThenHang),
    ];
    let met = Met::begin(tool, scripts).await;
    let (shown, calls) = met.end("compensated").await;
    assert_eq!(calls.len(), 4, "{:?}", shown.undo_stack);
    assert!(calls.iter().all(|call| call.key() == calls[0].key()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_that_nothing_explains_is_final() {
    let script = Script::always("/undo/", Act::Status(409));
    let (_, calls) = halts(charge(), vec![script], "PERMANENT").await;
    assert_eq!(calls.len(), 1);
    let script = Script::once("/undo/", Act::Status(409));
    let met = Met::begin(charge().body("retry_statuses", json!([409])), vec![script]).await;
    let (_, calls) = met.end("compensated").await;
    assert_eq!(calls.len(), 2, "the registration says that it is worth another try");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_that_names_its_object_has_no_body() {
    let tool = charge().undo(|undo| {
        undo.fn_body = json!({"method": "DELETE", "endpoint": "/undo/charge/{result.id}"});
    });
    let met = Met::begin(tool, Vec::new()).await;
    let (_, calls) = met.end("compensated").await;
    assert_eq!((calls[0].method.as_str(), calls[0].body.as_slice()), ("DELETE", &b""[..]));
    assert_eq!(calls[0].header("content-type"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_success_whose_body_says_otherwise_is_not_believed() {
    let refused = |status| Act::Answer(status, Vec::new(), r#"{"ok":false,"why":"x"}"#.to_owned());
    let when = json!([{"pointer": "/ok", "exists": false}, {"pointer": "/ok", "equals": true}]);
    let tool = || charge().body("done_when", when.clone());
    let (detail, calls) =
        halts(tool(), vec![Script::always("/undo/", refused(200))], "EXHAUSTED").await;
    assert!(detail.contains(r#"done_when does not hold: {"ok":false"#), "{detail}");
    assert_eq!(calls.len(), 4);
    let tool_at_once = tool().body("not_done", json!("dead_letter"));
    let script = Script::always("/undo/", refused(200));
    let (_, calls) = halts(tool_at_once, vec![script], "PERMANENT").await;
    assert_eq!(calls.len(), 1);
    let met = Met::begin(tool(), vec![Script::once("/undo/", refused(200))]).await;
    let (_, calls) = met.end("compensated").await;
    assert_eq!(calls.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_is_sent_as_one() {
    let tool = charge().body("body", json!("form")).body(
        "arg_mapping",
        json!({"charge": "{result.id}", "metadata": {"n": "{args.n}", "undo of": "{effect_id}"}}),
    );
    let met = Met::begin(tool, Vec::new()).await;
    let (shown, calls) = met.end("compensated").await;
    let form = "application/x-www-form-urlencoded";
    assert_eq!(calls[0].header("content-type"), Some(form));
    let effect = &shown.undo_stack[0].effect_id;
    let text = format!("charge=charge-1&metadata%5Bn%5D=1&metadata%5Bundo+of%5D={effect}");
    assert_eq!(String::from_utf8_lossy(&calls[0].body), text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_answer_is_given_up_at_its_timeout() {
    let tool = charge().retries(1, BACKOFF_MS).body("timeout_ms", json!(400));
    let (_, calls) = halts(tool, vec![Script::always("/undo/", Act::Hang)], "EXHAUSTED").await;
    assert_eq!(calls.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_at_the_top_keeps_what_lies_below() {
    let world = World::start().await;
    world.tool(charge()).await;
    world.tool(ToolSpec::compensable("email").retries(0, BACKOFF_MS)).await;
    let mut agent = world.agent().await;
    agent.call("charge", &json!({"n": 1})).await;
    agent.call("email", &json!({"n": 2})).await;
    world.witness.script(Script::always("/undo/email", Act::Status(500)));
    agent.call_that_fails("charge", &json!({"n": 3}), FailedEffect::NotApplied).await;
    agent.wait_state("halted", SOON).await;
    assert!(world.witness.calls_to("/undo/charge").is_empty(), "LIFO was broken");
    undolog_tests::check::fold_check(world.pool(), agent.session).await;
}
