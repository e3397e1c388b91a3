//! A tool's probe settles what nobody reported, before a human is bothered.

use serde_json::json;
use undolog_proto::v1::intercept_response::Outcome;
use undolog_proto::v1::{FailedEffect, RegisterToolRequest, Tool};
use undolog_tests::run::{EngineOptions, WorkerOptions};
use undolog_tests::witness::{Act, Script};
use undolog_tests::world::ToolSpec;
use undolog_tests::{SOON, World, within};

fn worker(crash_at: &str) -> WorkerOptions {
    let environment = vec![
        ("UNDOLOG_SHARED_SECRET_PROBE".to_owned(), "s3cret".to_owned()),
        ("UNDOLOG_CRASH_AT".to_owned(), crash_at.to_owned()),
    ];
    WorkerOptions { environment, ..WorkerOptions::default() }
}

/// Lets so much time pass for the question that its pause is over.
async fn pause_over(world: &World) {
    let past = "UPDATE undolog_effect_log SET lost_at = lost_at - interval '130 seconds', \
        probed_at = probed_at - interval '130 seconds'";
    sqlx::raw_sql(past).execute(world.pool()).await.unwrap();
}

/// A world whose tool has a probe.
async fn world(crash_at: &str) -> World {
    let mut world = World::without_servers().await;
    world.add_engine(EngineOptions::default()).await;
    world.add_worker(worker(crash_at)).await;
    world.org.set(world.pool(), "on_tool_failure", "continue").await;
    world.tool(ToolSpec::compensable("charge")).await;
    let probe = json!({
        "method": "GET", "endpoint": world.witness.url("/probe/{effect_id}"),
        "headers": {"Authorization": "Bearer {secret:PROBE}"},
        "happened": {"status": [200], "result": "/found"}, "did_not_happen": {"status": [404]},
    });
    let tool = Tool {
        tool_name: "charge".to_owned(),
        tier: "compensable".to_owned(),
        compensation_ref: "undo_charge".to_owned(),
        tool_schema: json!({"type": "object"}).to_string().into_bytes(),
        probe: probe.to_string().into_bytes(),
        ..Tool::default()
    };
    let request = RegisterToolRequest { org_id: String::new(), tool: Some(tool) };
    world.admin().await.registry().register_tool(request).await.unwrap();
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_asks_until_the_answer_is_clear() {
    let world = world("").await;
    let found = Act::Answer(200, Vec::new(), json!({"found": {"id": "charge-1"}}).to_string());
    world.witness.script(Script::always("/probe/", found));
    world.witness.script(Script::once("/probe/", Act::Answer(500, Vec::new(), "s3cret".into())));
    let mut agent = world.agent().await;
    let args = json!({"n": 1});
    let grant = agent.grant("charge", &args).await;
    agent.execute("charge", &grant.effect_id, &args).await;
    agent.fail(&grant.effect_id, FailedEffect::Unknown).await.unwrap();
    pause_over(&world).await;
    world.witness.wait_for_answers("/probe/", 1, SOON).await;
    let error = within(SOON, "the first answer is written down", || async {
        let sql = "SELECT probe_error FROM undolog_effect_log WHERE probe_answer = 'cannot_tell'";
        let found: Option<Option<String>> =
            sqlx::query_scalar(sql).fetch_optional(world.pool()).await.unwrap();
        found.flatten().ok_or("nothing yet")
    })
    .await;
    assert!(error.contains("500") && !error.contains("s3cret"), "{error}");
    pause_over(&world).await;
    let request = agent.request_at(1, "charge", &args);
    let replay = within(SOON, "the stored result is served", || async {
        match agent.ask(request.clone()).await {
            Ok(Outcome::Replay(replay)) => Ok(replay),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let output = replay.cached_result.unwrap_or_default().output;
    assert_eq!(String::from_utf8_lossy(&output), r#"{"id":"charge-1"}"#);
    let questions = world.witness.calls_to("/probe/");
    assert_eq!(questions.len(), 2);
    assert_eq!(questions[0].header("authorization"), Some("Bearer s3cret"));
    assert_eq!(questions[0].key(), None, "a question has no idempotency key");
    agent.rollback().await.unwrap();
    agent.wait_state("compensated", SOON).await;
    world.rollback_check(agent.session).await;
    assert!(world.witness.objects().is_empty(), "the found charge was not undone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_dies_with_the_answer_loses_a_question_and_nothing_else() {
    for point in ["probe.after_claim", "probe.after_ask"] {
        let mut world = world(point).await;
        let found = Act::Answer(200, Vec::new(), json!({"found": {"id": "charge-1"}}).to_string());
        world.witness.script(Script::always("/probe/", found));
        let mut agent = world.agent().await;
        let args = json!({"n": 1});
        let grant = agent.grant("charge", &args).await;
        agent.execute("charge", &grant.effect_id, &args).await;
        agent.fail(&grant.effect_id, FailedEffect::Unknown).await.unwrap();
        pause_over(&world).await;
        world.workers[0].process.wait_exit(SOON).await;
        world.add_worker(worker("")).await;
        pause_over(&world).await;
        within(SOON, "the next question settles it", || async {
            let sql = "SELECT state::text || probe_count FROM undolog_effect_log";
            let state: String = sqlx::query_scalar(sql).fetch_one(world.pool()).await.unwrap();
            if state == "committed2" { Ok(()) } else { Err(state) }
        })
        .await;
        agent.rollback().await.unwrap();
        agent.wait_state("compensated", SOON).await;
        world.rollback_check(agent.session).await;
    }
}
