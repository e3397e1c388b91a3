//! Commit and Fail outside of a rollback, and their repetition.

use serde_json::json;
use undolog_core::{Reason, role::Role, state::FailedEffect};
use undolog_store::{
    intercept::StoredResult,
    report::{Commit, Fail},
};

use crate::bench::{Bench, refused, replayed};

#[tokio::test]
async fn the_same_outcome_again_is_fine_and_another_is_a_conflict() {
    let bench = Bench::new().await;
    let effect = bench.grant(1, "pay").await;
    bench.commit(effect, &json!({"b": 1, "a": 2})).await.expect("commit");
    bench.commit(effect, &json!({"a": 2, "b": 1})).await.expect("the same value");
    refused(bench.commit(effect, &json!({"a": 3})).await, Reason::ResultConflict);
    refused(bench.fail(effect, FailedEffect::NotApplied).await, Reason::ResultConflict);
    assert_eq!(bench.effect_state(effect).await, "committed");
    assert_eq!(bench.session_state().await, "active");
    bench.check().await;
}

#[tokio::test]
async fn a_commit_without_success_is_a_fail() {
    let bench = Bench::new().await;
    let effect = bench.grant(1, "pay").await;
    let result = StoredResult {
        success: false,
        output: b"null".to_vec(),
        error: "card\0declined".into(),
        duration_ms: 1,
    };
    let step = Commit { result, ..bench.commit_step(effect, &json!(null)) };
    bench.store.run(step).await.expect("recorded");
    assert_eq!(bench.effect_state(effect).await, "failed");
    assert_eq!(bench.session_state().await, "compensating");
    let error = bench
        .text(
            "SELECT error || encode(error_raw, 'hex') || outcome FROM undolog_effect_log \
             WHERE session_id = $1",
        )
        .await;
    assert_eq!(
        error,
        "card\u{2400}declined636172640064 65636c696e6564maybe_applied".replace(' ', "")
    );
    bench.check().await;
}

#[tokio::test]
async fn results_come_back_as_they_were() {
    let bench = Bench::new().await;
    for (step, text) in (1..).zip([
        r#"{"id":12345678901234567890123}"#,
        r#"{"huge":1e400}"#,
        r#"{"nul":"a\u0000b"}"#,
        r#"{"a":1,"a":2}"#,
        r#"["\ud800"]"#,
        "1.50",
        "null",
    ]) {
        let effect = bench.grant(step, "pay").await;
        let result = StoredResult {
            success: true,
            output: text.as_bytes().to_vec(),
            error: String::new(),
            duration_ms: 1,
        };
        let step_ = Commit { result, ..bench.commit_step(effect, &json!(null)) };
        bench.store.run(step_).await.unwrap_or_else(|error| panic!("{text}: {error}"));
        match bench.ask(step, "pay").await.expect("replay") {
            undolog_store::intercept::InterceptReply::Replay { result, .. } => {
                let output = String::from_utf8(result.output).expect("UTF-8");
                assert!(
                    output == text || (text == "1.50" && output == "1.5"),
                    "{output} for {text}"
                );
            }
            other => panic!("no Replay: {other:?}"),
        }
    }
    bench.check().await;
}

#[tokio::test]
async fn a_stale_attempt_is_kept_on_its_own() {
    let bench = Bench::new().await;
    bench.continue_on_failure().await;
    let effect = bench.grant(1, "pay").await;
    bench.fail(effect, FailedEffect::NotApplied).await.expect("fail");
    bench.grant(1, "pay").await;
    bench.commit_attempt(effect, 1, &json!({"id": "old"})).await.expect("evidence is recorded");
    assert_eq!(bench.effect_state(effect).await, "executing");
    bench.commit_attempt(effect, 2, &json!({"id": "new"})).await.expect("commit");
    assert_eq!(replayed(&bench.ask(1, "pay").await.expect("replay")), json!({"id": "new"}));
    let entries = bench
        .text(
            "SELECT string_agg(state || '/' || attempt, ' ' ORDER BY stack_position) \
             FROM undolog_undo_stack WHERE session_id = $1",
        )
        .await;
    assert_eq!(entries, "skipped/1 pending/2 pending/1", "both attempts will be undone");
    refused(bench.commit_attempt(effect, 3, &json!(1)).await, Reason::AttemptInvalid);
    bench.check().await;
}

#[tokio::test]
async fn nobody_reports_on_what_is_not_theirs() {
    let bench = Bench::new().await;
    let effect = bench.grant(1, "pay").await;
    for (caller, reason) in [
        (bench.caller(Role::Agent, "agent-2"), Reason::SessionNotFound),
        (bench.caller(Role::Executor, "proxy"), Reason::PermissionDenied),
    ] {
        let result = StoredResult {
            success: true,
            output: Vec::new(),
            error: String::new(),
            duration_ms: 0,
        };
        let step = Commit { caller, result, ..bench.commit_step(effect, &json!(null)) };
        refused(bench.store.run(step).await, reason);
    }
    refused(bench.commit(uuid::Uuid::new_v4(), &json!(1)).await, Reason::EffectNotFound);
    refused(bench.commit(uuid::Uuid::now_v7(), &json!(1)).await, Reason::EffectNotFound);
    assert_eq!(bench.effect_state(effect).await, "executing");
}

/// A report carries the policy of its call, so that nothing lies between two requests.
#[tokio::test]
async fn a_report_of_a_failure_says_what_it_does_to_the_session() {
    let bench = Bench::new().await;
    let fail = |effect_id, policy: &str| Fail {
        on_tool_failure: policy.into(),
        ..bench.fail_step(effect_id, FailedEffect::MaybeApplied)
    };
    let first = bench.grant(1, "pay").await;
    refused(bench.store.run(fail(first, "later")).await, Reason::InvalidArgument);
    assert_eq!(bench.effect_state(first).await, "executing", "nothing is recorded");
    bench.store.run(fail(first, "continue")).await.expect("fail");
    assert_eq!(bench.session_state().await, "active", "whatever the session's policy is");
    bench.continue_on_failure().await;
    let second = bench.grant(2, "pay").await;
    bench.store.run(fail(second, "rollback")).await.expect("fail");
    assert_eq!(bench.session_state().await, "compensating");
    bench.check().await;
}
