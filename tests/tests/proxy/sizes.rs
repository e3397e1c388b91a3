//! Large values over HTTP: answers that fit, and one value at a time.

use serde_json::json;
use uuid::Uuid;

use super::{bench::Bench, sessions::run};

/// Just below the documented limit of arguments and results.
const LARGE: usize = 4_000_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_large_calls_is_shown_and_its_values_are_streamed() {
    let bench = Bench::start().await;
    let agent = bench.agent().await;
    let session = Uuid::new_v4();
    for step in 1..=6 {
        run(&bench, &agent, session, step).await;
    }
    // Large values are written past the engine, whose parsing takes its time in a test's build.
    sqlx::raw_sql(&format!(
        "UPDATE undolog_effect_log SET args_snapshot_raw = convert_to('{{\"n\":\"' || step_index \
           || repeat('a', {LARGE}) || '\"}}', 'UTF8'); \
         UPDATE undolog_effect_log SET result_snapshot_raw = args_snapshot_raw, \
           compensation_args_raw = args_snapshot_raw; \
         UPDATE undolog_undo_stack SET compensation_args_raw = convert_to('{{\"v\":\"' \
           || stack_position || repeat('a', {LARGE}) || '\"}}', 'UTF8')"
    ))
    .execute(bench.world.pool())
    .await
    .unwrap();

    let shown = agent.get(&format!("/sessions/{session}")).await.is(200).body;
    let stack = shown["undo_stack"].as_array().unwrap();
    assert_eq!(stack.len(), 6);
    for (entry, step) in stack.iter().zip((1..=6).rev()) {
        assert_eq!(entry["fields_left_out"], json!(["compensation_args"]));
        let undo_id = entry["undo_id"].as_str().unwrap();
        let value = agent.get(&format!("/values/undo_entry/{undo_id}/compensation_args")).await;
        let value = value.is(200);
        assert_eq!(value.headers["content-type"], "application/json");
        assert_eq!(value.text, format!(r#"{{"v":"{step}{}"}}"#, "a".repeat(LARGE)));
    }
    let dry = json!({"dry_run": true});
    let plan = agent.post(&format!("/sessions/{session}/rollback"), dry).await.is(200).body;
    assert_eq!(plan["plan"].as_array().unwrap().len(), 6);

    let page = agent.get(&format!("/sessions/{session}/effects?page_size=1")).await.is(200).body;
    let effect = &page["effects"][0];
    assert_eq!(effect["fields_left_out"].as_array().unwrap().len(), 1);
    let effect_id = effect["effect_id"].as_str().unwrap();
    let field = effect["fields_left_out"][0].as_str().unwrap();
    let value = agent.get(&format!("/values/effect/{effect_id}/{field}")).await.is(200);
    assert_eq!(value.text.len(), LARGE + 9);
    // There is no value, no such field, no such row.
    agent.get(&format!("/values/effect/{effect_id}/error")).await.is(204);
    let none = agent.get(&format!("/values/effect/{effect_id}/nothing")).await;
    none.refused(400, "INVALID_ARGUMENT");
    let none = agent.get(&format!("/values/effect/{}/args", Uuid::now_v7())).await;
    none.refused(404, "EFFECT_NOT_FOUND");
}
