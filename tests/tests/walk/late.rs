//! Reports and commits that come late.

use serde_json::json;
use undolog_core::{retry::CallOutcome, state::FailedEffect};
use undolog_store::walk::Next;

use crate::{
    bench::Bench,
    walker::{Walker, body, entries, lease_over, letters, outcomes, pay, report_of, time_passes},
};

#[tokio::test]
async fn a_late_success_settles_a_halted_rollback() {
    let bench = Bench::new().await;
    let effects = pay(&bench, 2).await;
    let slow = Walker::start(&bench).await;
    let first_call = Walker::call(slow.step(None).await);
    lease_over(&bench).await;
    let mut other = Walker::claim_as(&bench, "worker-2").await;
    other.step(None).await;
    time_passes(&bench).await;
    other = Walker::claim_as(&bench, "worker-2").await;
    other.place = undolog_store::walk::Place::OwnProcess;
    let second_call = Walker::call(other.step(None).await);
    assert_eq!(first_call.undo_id, second_call.undo_id, "the same key");
    other.step(Some(report_of(&second_call, CallOutcome::Permanent))).await;
    assert_eq!(bench.session_state().await, "halted");

    let next = slow.step(Some(report_of(&first_call, CallOutcome::Done))).await;
    assert!(matches!(next, Next::Lost), "{next:?}");
    assert_eq!(outcomes(&bench).await, ["succeeded", "permanent"]);
    assert_eq!(bench.effect_state(effects[1]).await, "compensated");
    assert_eq!(letters(&bench).await, [("PERMANENT".to_owned(), false)]);
    let closed = "SELECT closed_by FROM undolog_dead_letters WHERE session_id = $1";
    assert_eq!(bench.text(closed).await, "system:late_success");
    assert_eq!(bench.session_state().await, "compensating", "and the walk goes on");
    let walker = Walker::claim(&bench).await;
    assert_eq!(walker.succeed().await.len(), 1);
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
}

#[tokio::test]
async fn a_late_success_on_an_open_entry_needs_no_second_call() {
    let bench = Bench::new().await;
    pay(&bench, 1).await;
    let slow = Walker::start(&bench).await;
    let call = Walker::call(slow.step(None).await);
    lease_over(&bench).await;
    let other = Walker::claim_as(&bench, "worker-2").await;
    let next = other.step(None).await;
    assert!(matches!(next, Next::Waiting), "interrupted, with backoff: {next:?}");
    slow.step(Some(report_of(&call, CallOutcome::Done))).await;
    let third = Walker::claim_as(&bench, "worker-3").await;
    let next = third.step(None).await;
    assert!(matches!(next, Next::Done), "{next:?}");
    assert_eq!(outcomes(&bench).await, ["succeeded"]);
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
}

#[tokio::test]
async fn a_late_commit_waits_its_turn_and_its_result_is_used() {
    let bench = Bench::new().await;
    bench.compensation("undo_pay", json!({"arg_mapping": {"id": "{result.id}"}})).await;
    pay(&bench, 1).await;
    let late = bench.grant(2, "pay").await;
    bench.fail(late, FailedEffect::MaybeApplied).await.expect("fail");
    bench.commit(late, &json!({"id": "late"})).await.expect_err("it hears the session's state");
    let walker = Walker::claim(&bench).await;
    let made = walker.succeed().await;
    let bodies: Vec<&str> = made.iter().map(|(_, body)| body.as_str()).collect();
    assert_eq!(bodies, [r#"{"id":"late"}"#, r#"{"id":"p-1"}"#]);
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
}

#[tokio::test]
async fn a_commit_during_the_call_is_used_by_the_next_one() {
    let bench = Bench::new().await;
    let on_null = json!({"arg_mapping": {"id": "{result.id}"}, "on_missing_result": "null"});
    bench.compensation("undo_pay", on_null).await;
    let effect = bench.grant(1, "pay").await;
    bench.fail(effect, FailedEffect::MaybeApplied).await.expect("fail");
    let mut walker = Walker::claim(&bench).await;
    let call = Walker::call(walker.step(None).await);
    assert_eq!(body(&call.call), r#"{"id":null}"#);
    let _heard = bench.commit(effect, &json!({"id": "late"})).await;
    walker.step(Some(report_of(&call, CallOutcome::Retry))).await;
    time_passes(&bench).await;
    walker = Walker::claim(&bench).await;
    let call = Walker::call(walker.step(None).await);
    assert_eq!(body(&call.call), r#"{"id":"late"}"#);
    walker.step(Some(report_of(&call, CallOutcome::Done))).await;
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
}

#[tokio::test]
async fn a_commit_during_a_successful_call_that_did_not_know_it_is_a_dead_letter_or_another_call() {
    for repeatable in [false, true] {
        let bench = Bench::new().await;
        bench.compensation("undo_pay", json!({"repeatable": repeatable})).await;
        let effect = bench.grant(1, "pay").await;
        bench.fail(effect, FailedEffect::MaybeApplied).await.expect("fail");
        let walker = Walker::claim(&bench).await;
        let call = Walker::call(walker.step(None).await);
        let _heard = bench.commit(effect, &json!({"id": "late"})).await;
        let next = walker.step(Some(report_of(&call, CallOutcome::Done))).await;
        if repeatable {
            let again = Walker::call(next);
            assert_ne!(again.undo_id, call.undo_id, "under a new key");
            walker.step(Some(report_of(&again, CallOutcome::Done))).await;
            assert_eq!(bench.session_state().await, "compensated");
            assert_eq!(entries(&bench).await, ["compensated", "compensated"]);
        } else {
            assert_eq!(letters(&bench).await, [("LATE_COMMIT".to_owned(), true)]);
            assert_eq!(bench.session_state().await, "halted");
        }
        assert_eq!(bench.effect_state(effect).await, "compensated");
        bench.check().await;
    }
}
