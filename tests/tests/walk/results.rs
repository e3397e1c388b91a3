//! Missing results, unknown effects, and registrations that cannot be used.

use serde_json::{Value, json};
use undolog_core::state::FailedEffect;
use undolog_store::walk::Next;
use uuid::Uuid;

use crate::{
    bench::Bench,
    walker::{Walker, entries, letters, pay, run, time_passes},
};

/// One payment that worked and one on top whose outcome is `effect`; answers the upper one.
async fn upper(bench: &Bench, more: Value, effect: FailedEffect) -> Uuid {
    bench.continue_on_failure().await;
    bench.compensation("undo_pay", more).await;
    pay(bench, 1).await;
    let upper = bench.grant(2, "pay").await;
    bench.fail(upper, effect).await.expect("fail");
    run(bench.db.pool(), "UPDATE undolog_orgs SET settle_ms = 0").await;
    upper
}

fn needs_result(more: Value) -> Value {
    let mut body = json!({"arg_mapping": {"id": "{result.id}"}});
    for (key, value) in more.as_object().expect("an object") {
        body[key] = value.clone();
    }
    body
}

#[tokio::test]
async fn a_reported_failure_without_a_result_is_skipped_and_unverified() {
    let bench = Bench::new().await;
    upper(&bench, needs_result(json!({})), FailedEffect::MaybeApplied).await;
    let walker = Walker::start(&bench).await;
    assert_eq!(walker.succeed().await.len(), 1);
    assert_eq!(entries(&bench).await, ["compensated", "skipped:failed_without_result"]);
    assert_eq!(bench.session_state().await, "compensated");
    let unverified =
        bench.text("SELECT unverified_count::text FROM undolog_rollbacks WHERE session_id = $1");
    assert_eq!(unverified.await, "1");
    bench.check().await;
}

#[tokio::test]
async fn an_unknown_effect_without_a_result_is_a_dead_letter_that_does_not_stop_the_walk() {
    let bench = Bench::new().await;
    let effect = upper(&bench, needs_result(json!({})), FailedEffect::Unknown).await;
    let walker = Walker::start(&bench).await;
    assert_eq!(walker.succeed().await.len(), 1, "the lower entry is undone");
    assert_eq!(letters(&bench).await, [("MISSING_RESULT".to_owned(), true)]);
    assert_eq!(entries(&bench).await, ["compensated", "failed"]);
    assert_eq!(bench.session_state().await, "halted");
    // The result comes after all: the entry goes back to work.
    let _heard = bench.commit(effect, &json!({"id": "p-2"})).await;
    assert_eq!(letters(&bench).await, [("MISSING_RESULT".to_owned(), false)]);
    let walker = Walker::claim(&bench).await;
    assert_eq!(walker.succeed().await, [(effect, r#"{"id":"p-2"}"#.to_owned())]);
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
}

#[tokio::test]
async fn a_missing_result_is_handled_as_the_registration_says() {
    for (policy, failed, expected) in [
        ("skip", FailedEffect::Unknown, "skipped:missing_result"),
        ("null", FailedEffect::Unknown, "compensated"),
        ("dead_letter", FailedEffect::MaybeApplied, "failed"),
    ] {
        let bench = Bench::new().await;
        upper(&bench, needs_result(json!({"on_missing_result": policy})), failed).await;
        let walker = Walker::start(&bench).await;
        walker.succeed().await;
        assert_eq!(entries(&bench).await, ["compensated", expected], "{policy}");
        bench.check().await;
    }
}

#[tokio::test]
async fn an_unknown_effect_is_handled_as_the_registration_says() {
    for policy in ["dead_letter", "probe"] {
        let bench = Bench::new().await;
        upper(&bench, json!({"on_unknown": policy}), FailedEffect::Unknown).await;
        let walker = Walker::start(&bench).await;
        let next = walker.step(None).await;
        assert!(matches!(next, Next::Done), "{next:?}");
        assert_eq!(letters(&bench).await, [("OUTCOME_UNKNOWN".to_owned(), true)]);
        assert_eq!(entries(&bench).await, ["pending", "failed"]);
        assert_eq!(bench.session_state().await, "halted");
        bench.check().await;
    }
    let bench = Bench::new().await;
    upper(&bench, json!({}), FailedEffect::Unknown).await;
    let walker = Walker::start(&bench).await;
    assert_eq!(walker.succeed().await.len(), 2, "the documented default compensates");
    assert_eq!(bench.session_state().await, "compensated");
}

#[tokio::test]
async fn what_is_known_not_to_have_happened_is_skipped() {
    let bench = Bench::new().await;
    upper(&bench, json!({}), FailedEffect::NotApplied).await;
    let walker = Walker::start(&bench).await;
    assert_eq!(walker.succeed().await.len(), 1);
    assert_eq!(entries(&bench).await, ["compensated", "skipped:not_applied"]);
    bench.check().await;
}

#[tokio::test]
async fn a_registration_that_cannot_be_used_is_a_dead_letter() {
    for (change, reason) in [
        ("UPDATE undolog_compensation_registry SET is_active = false", "COMPENSATION_MISSING"),
        ("DELETE FROM undolog_compensation_registry", "COMPENSATION_MISSING"),
        (
            "UPDATE undolog_compensation_registry SET args_schema = '{\"required\": [\"absent\"]}'",
            "UNRENDERABLE",
        ),
        ("UPDATE undolog_compensation_registry SET fn_body = '{\"kind\": 1}'", "UNRENDERABLE"),
        (
            "UPDATE undolog_compensation_registry SET fn_body = fn_body || \
             '{\"endpoint\": \"https://undo.example/{result.absent}\"}'",
            "UNRENDERABLE",
        ),
    ] {
        let bench = Bench::new().await;
        let effects = pay(&bench, 2).await;
        let epoch = "UPDATE undolog_orgs SET registry_epoch = registry_epoch + 1";
        run(bench.db.pool(), &format!("{change}; {epoch}")).await;
        let walker = Walker::start(&bench).await;
        let next = walker.step(None).await;
        assert!(matches!(next, Next::Done), "{change}: {next:?}");
        assert_eq!(letters(&bench).await, [(reason.to_owned(), true)], "{change}");
        assert_eq!(bench.effect_state(effects[1]).await, "compensation_failed");
        assert_eq!(bench.session_state().await, "halted");
        bench.check().await;
    }
}

#[tokio::test]
async fn an_unknown_effect_gets_its_settling_time() {
    let bench = Bench::new().await;
    upper(&bench, json!({}), FailedEffect::Unknown).await;
    run(bench.db.pool(), "UPDATE undolog_orgs SET settle_ms = 3600000").await;
    bench.rollback(undolog_store::sessions::RollbackScope::Whole).await.expect("rollback");
    let store = crate::walker::worker_store(&bench).await;
    assert!(crate::walker::try_claim(&bench, &store, "w").await.is_none(), "not due yet");
    time_passes(&bench).await;
    let walker = Walker::claim(&bench).await;
    let next = walker.step(None).await;
    assert!(matches!(next, Next::Waiting), "it may still run: {next:?}");
    let lost = "UPDATE undolog_effect_log SET lost_at = now() - interval '2 hours' \
        WHERE lost_at IS NOT NULL";
    run(bench.db.pool(), lost).await;
    time_passes(&bench).await;
    let walker = Walker::claim(&bench).await;
    assert_eq!(walker.succeed().await.len(), 2);
    bench.check().await;
}

#[tokio::test]
async fn a_result_is_taken_from_those_whom_the_registration_believes_only() {
    for policy in ["auto", "null", "skip"] {
        let bench = Bench::new().await;
        bench.compensation("undo_pay", needs_result(json!({"on_missing_result": policy}))).await;
        run(
            bench.db.pool(),
            "UPDATE undolog_compensation_registry SET result_from = 'executor'; \
             UPDATE undolog_orgs SET registry_epoch = registry_epoch + 1",
        )
        .await;
        let effects = pay(&bench, 2).await;
        let seen = "UPDATE undolog_effect_log SET result_by = 'probe' WHERE position = 1";
        run(bench.db.pool(), seen).await;
        let walker = Walker::start(&bench).await;
        let called = walker.succeed().await;
        assert_eq!(called.len(), 1, "{policy}: {called:?}");
        assert_eq!(called[0].0, effects[0], "what a probe saw is sent");
        assert_eq!(letters(&bench).await, [("MISSING_RESULT".to_owned(), true)], "{policy}");
        bench.check().await;
    }
}
