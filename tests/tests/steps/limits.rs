//! Each limit: the last that fits is taken, the first that does not is refused by its code and
//! leaves no row.

use serde_json::json;
use undolog_core::{Reason, limits};
use undolog_store::{
    intercept::{DescriptorInput, StoredResult},
    report::Commit,
};

use crate::bench::{Bench, executed, refused};

#[tokio::test]
async fn a_result_may_be_so_long_and_no_longer() {
    let bench = Bench::new().await;
    let effect = bench.grant(1, "pay").await;
    let report = |bytes: usize| {
        let text = format!("\"{}\"", "x".repeat(bytes - 2));
        let result = StoredResult {
            success: true,
            output: text.into_bytes(),
            error: String::new(),
            duration_ms: 0,
        };
        bench.store.run(Commit { result, ..bench.commit_step(effect, &json!(null)) })
    };
    refused(report(limits::RESULT_BYTES_MAX + 1).await, Reason::LimitExceeded);
    assert_eq!(bench.effect_state(effect).await, "executing", "nothing was recorded");
    report(limits::RESULT_BYTES_MAX).await.expect("it fits");
    bench.check().await;
}

#[tokio::test]
async fn retries_and_backoff_have_an_end() {
    let bench = Bench::new().await;
    let with = |step, retries, backoff_ms| {
        let mut input = bench.input(step, "pay", &json!({}));
        input.compensation = Some(DescriptorInput {
            fn_name: "undo_pay".into(),
            max_retries: Some(retries),
            retry_backoff_ms: Some(backoff_ms),
            ..DescriptorInput::default()
        });
        bench.send(input)
    };
    let backoff_max = u32::try_from(limits::BACKOFF_MS_MAX).expect("an hour");
    refused(with(1, limits::RETRIES_MAX + 1, 1).await, Reason::LimitExceeded);
    refused(with(1, 1, backoff_max + 1).await, Reason::LimitExceeded);
    assert_eq!(bench.count("undolog_effect_log").await, 0);
    executed(&with(1, limits::RETRIES_MAX, backoff_max).await.expect("they fit"));
}

#[tokio::test]
async fn a_compensation_repeats_no_argument_without_end() {
    let bench = Bench::new().await;
    let long = "x".repeat(limits::ARGS_BYTES_MAX / 2);
    let with = |step, times: usize| {
        let mut input = bench.input(step, "pay", &json!({"n": long}));
        input.compensation = Some(DescriptorInput {
            fn_name: "undo_pay".into(),
            args: json!({"v": "{n}".repeat(times)}).to_string().into_bytes(),
            ..DescriptorInput::default()
        });
        bench.send(input)
    };
    refused(with(1, 1_000_000).await, Reason::CompensationUnusable);
    assert_eq!(bench.count("undolog_effect_log").await, 0);
    executed(&with(1, 1).await.expect("it fits"));
}

#[tokio::test]
async fn a_session_has_room_for_so_many_effects() {
    let bench = Bench::new().await;
    bench.begin().await;
    let last = limits::EFFECTS_PER_SESSION_MAX - 1;
    bench.run_sql(&format!("UPDATE undolog_sessions SET effects_total = {last}")).await;
    bench.grant(1, "pay").await;
    refused(bench.ask(2, "pay").await, Reason::LimitExceeded);
    assert_eq!(bench.count("undolog_effect_log").await, 1);
    // What is there already is answered still.
    refused(bench.ask(1, "pay").await, Reason::InProgress);
}
