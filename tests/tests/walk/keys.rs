//! One key, one call: what was sent under a key is what is sent under it again.

use serde_json::json;
use undolog_core::{
    retry::CallOutcome,
    role::Role,
    state::{FailedEffect, SessionState},
};
use undolog_store::{
    operate::RetryDeadLetter,
    walk::{Next, PreparedCall, Report},
};
use uuid::Uuid;

use crate::{
    bench::Bench,
    walker::{Walker, body, entries, letters, pay, report_of, run, time_passes},
};

/// A failed try: it may have been carried out, or nothing was sent.
fn failed(call: &PreparedCall, may_have_run: bool) -> Report {
    Report { may_have_run, status: None, ..report_of(call, CallOutcome::Retry) }
}

/// One call whose outcome is unknown and whose compensation sends null for the missing result.
async fn unknown(bench: &Bench) -> Uuid {
    bench.continue_on_failure().await;
    let more = json!({"arg_mapping": {"id": "{result.id}"}, "on_missing_result": "null"});
    bench.compensation("undo_pay", more).await;
    let effect = bench.grant(1, "pay").await;
    bench.fail(effect, FailedEffect::Unknown).await.expect("fail");
    run(bench.db.pool(), "UPDATE undolog_orgs SET settle_ms = 0").await;
    effect
}

/// The registration's call changes under the same name and version.
async fn change(bench: &Bench) {
    let sql = "UPDATE undolog_compensation_registry SET fn_body = fn_body || \
        '{\"arg_mapping\": {\"changed\": true}}'; \
        UPDATE undolog_orgs SET registry_epoch = registry_epoch + 1";
    run(bench.db.pool(), sql).await;
}

async fn next_call(bench: &Bench) -> (Walker, PreparedCall) {
    time_passes(bench).await;
    let walker = Walker::claim(bench).await;
    let call = Walker::call(walker.step(None).await);
    (walker, call)
}

#[tokio::test]
async fn a_key_may_be_in_use_after_a_call_that_may_have_been_carried_out() {
    let bench = Bench::new().await;
    pay(&bench, 1).await;
    let walker = Walker::start(&bench).await;
    let call = Walker::call(walker.step(None).await);
    assert!(!call.rules.key_may_be_in_use, "nothing was sent before");
    walker.step(Some(failed(&call, false))).await;
    let (walker, call) = next_call(&bench).await;
    assert!(!call.rules.key_may_be_in_use, "nothing has arrived");
    walker.step(Some(failed(&call, true))).await;
    let (walker, call) = next_call(&bench).await;
    assert!(call.rules.key_may_be_in_use);
    walker.step(Some(report_of(&call, CallOutcome::Done))).await;
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
}

#[tokio::test]
async fn what_may_have_been_carried_out_is_sent_again_as_it_was() {
    let bench = Bench::new().await;
    let effect = unknown(&bench).await;
    let walker = Walker::start(&bench).await;
    let first = Walker::call(walker.step(None).await);
    assert_eq!(body(&first.call), r#"{"id":null}"#);
    walker.step(Some(failed(&first, true))).await;
    let _heard = bench.commit(effect, &json!({"id": "ch_77"})).await;
    let (walker, second) = next_call(&bench).await;
    assert_eq!(second.undo_id, first.undo_id);
    assert_eq!(body(&second.call), r#"{"id":null}"#, "one key, one call");
    // It went through, and knew nothing of the result: as with any report that came too late.
    walker.step(Some(report_of(&second, CallOutcome::Done))).await;
    assert_eq!(letters(&bench).await, [("LATE_COMMIT".to_owned(), true)]);
    bench.check().await;
}

#[tokio::test]
async fn what_was_not_carried_out_is_sent_as_it_is_now_under_a_new_key() {
    let bench = Bench::new().await;
    let effect = unknown(&bench).await;
    let walker = Walker::start(&bench).await;
    let first = Walker::call(walker.step(None).await);
    walker.step(Some(failed(&first, false))).await;
    let _heard = bench.commit(effect, &json!({"id": "ch_77"})).await;
    let (walker, second) = next_call(&bench).await;
    assert_ne!(second.undo_id, first.undo_id);
    assert_eq!(body(&second.call), r#"{"id":"ch_77"}"#);
    let next = walker.step(Some(report_of(&second, CallOutcome::Done))).await;
    assert!(matches!(next, Next::Done), "{next:?}");
    assert_eq!(entries(&bench).await, ["skipped:superseded", "compensated"]);
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
}

#[tokio::test]
async fn a_changed_registration_sends_no_second_call_that_could_undo_twice() {
    let bench = Bench::new().await;
    pay(&bench, 2).await;
    let walker = Walker::start(&bench).await;
    let first = Walker::call(walker.step(None).await);
    walker.step(Some(failed(&first, true))).await;
    change(&bench).await;
    time_passes(&bench).await;
    let next = Walker::claim(&bench).await.step(None).await;
    assert!(matches!(next, Next::Done), "{next:?}");
    assert_eq!(letters(&bench).await, [("CALL_CHANGED".to_owned(), true)]);
    assert_eq!(entries(&bench).await, ["pending", "failed"]);
    // A human has looked: the new call goes out under a new key.
    let id = bench.text("SELECT dead_letter_id::text FROM undolog_dead_letters").await;
    let retry = RetryDeadLetter {
        caller: bench.caller(Role::Operator, "operator-1"),
        dead_letter_id: id.parse().expect("an id"),
        args: None,
        fresh_key: true,
        note: String::new(),
    };
    let state = bench.store.run(retry).await.expect("retried");
    assert_eq!(state, SessionState::Compensating);
    let (walker, second) = next_call(&bench).await;
    assert_ne!(second.undo_id, first.undo_id);
    assert_eq!(body(&second.call), r#"{"changed":true}"#);
    let next = walker.step(Some(report_of(&second, CallOutcome::Done))).await;
    let lower = Walker::call(next);
    walker.step(Some(report_of(&lower, CallOutcome::Done))).await;
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
}

#[tokio::test]
async fn a_call_that_failed_is_sent_as_it_is_registered_now() {
    let bench = Bench::new().await;
    pay(&bench, 1).await;
    let walker = Walker::start(&bench).await;
    let first = Walker::call(walker.step(None).await);
    walker.step(Some(report_of(&first, CallOutcome::Retry))).await;
    change(&bench).await;
    let (walker, second) = next_call(&bench).await;
    assert_ne!(second.undo_id, first.undo_id, "a strict endpoint may have kept the key");
    assert_eq!(body(&second.call), r#"{"changed":true}"#);
    // What it was tried before counts.
    let count = "SELECT retry_count::text FROM undolog_undo_stack ORDER BY stack_position DESC";
    assert_eq!(bench.text(count).await, "1");
    walker.step(Some(report_of(&second, CallOutcome::Done))).await;
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
}
