//! Calls that end the process that makes them.

use undolog_core::retry::CallOutcome;
use undolog_store::walk::{Next, Outcome, Place};

use crate::{
    bench::Bench,
    walker::{
        Walker, entries, lease_over, letters, outcomes, pay, report_about, report_of, time_passes,
    },
};

/// Claims the rollback and begins its next call, at this place.
async fn begins(bench: &Bench, place: Place) -> (Walker, undolog_store::walk::PreparedCall) {
    loop {
        time_passes(bench).await;
        let mut walker = Walker::claim(bench).await;
        walker.place = place;
        match walker.step(None).await {
            Next::Call(call) => return (walker, *call),
            // The step found the interruption, and the entry waits for its backoff.
            Next::Waiting => {}
            other => panic!("no call: {other:?}"),
        }
    }
}

/// A worker begins a call and dies in it.
async fn worker_dies(bench: &Bench, place: Place) {
    begins(bench, place).await;
    lease_over(bench).await;
}

/// The process that makes the call and nothing else dies.
async fn own_process_dies(bench: &Bench) -> Next {
    let (walker, call) = begins(bench, Place::OwnProcess).await;
    walker.step(Some(report_about(call.undo_attempt_id, call.undo_id, Outcome::Died))).await
}

#[tokio::test]
async fn an_interrupted_call_is_not_counted_and_gets_a_process_of_its_own_after_a_backoff() {
    let bench = Bench::new().await;
    pay(&bench, 1).await;
    bench.rollback(undolog_store::sessions::RollbackScope::Whole).await.expect("rollback");
    worker_dies(&bench, Place::Worker).await;
    let walker = Walker::claim(&bench).await;
    let next = walker.step(None).await;
    assert!(matches!(next, Next::Waiting), "with backoff: {next:?}");
    assert_eq!(outcomes(&bench).await, ["interrupted"]);
    time_passes(&bench).await;
    let mut walker = Walker::claim(&bench).await;
    let next = walker.step(None).await;
    assert!(matches!(next, Next::NeedsOwnProcess), "{next:?}");
    walker.place = Place::OwnProcess;
    let call = Walker::call(walker.step(None).await);
    let next = walker.step(Some(report_of(&call, CallOutcome::Done))).await;
    assert!(matches!(next, Next::Done), "{next:?}");
    let (retries, interruptions): (i16, i32) =
        sqlx::query_as("SELECT retry_count, interruptions FROM undolog_undo_stack")
            .fetch_one(bench.db.pool())
            .await
            .expect("the entry");
    assert_eq!((retries, interruptions), (0, 0));
    bench.check().await;
}

#[tokio::test]
async fn a_call_that_ends_three_processes_of_its_own_is_poison() {
    let bench = Bench::new().await;
    pay(&bench, 2).await;
    bench.rollback(undolog_store::sessions::RollbackScope::Whole).await.expect("rollback");
    worker_dies(&bench, Place::Worker).await;
    for n in 1..=3 {
        assert_eq!(letters(&bench).await, []);
        let next = own_process_dies(&bench).await;
        assert_eq!(matches!(next, Next::Waiting), n < 3, "{next:?}");
    }
    assert_eq!(letters(&bench).await, [("POISON".to_owned(), true)]);
    assert_eq!(outcomes(&bench).await, vec!["interrupted"; 4]);
    assert_eq!(entries(&bench).await, ["pending", "failed"]);
    assert_eq!(bench.session_state().await, "halted");
    bench.check().await;
}

#[tokio::test]
async fn no_death_of_a_worker_is_laid_at_the_door_of_a_call_in_a_process_of_its_own() {
    let bench = Bench::new().await;
    pay(&bench, 1).await;
    bench.rollback(undolog_store::sessions::RollbackScope::Whole).await.expect("rollback");
    worker_dies(&bench, Place::Worker).await;
    own_process_dies(&bench).await;
    for _ in 0..6 {
        worker_dies(&bench, Place::OwnProcess).await;
    }
    assert_eq!(letters(&bench).await, [], "six workers died beside it");
    own_process_dies(&bench).await;
    let (walker, call) = begins(&bench, Place::OwnProcess).await;
    walker.step(Some(report_of(&call, CallOutcome::Done))).await;
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
}

#[tokio::test]
async fn a_call_that_ends_begins_the_count_anew() {
    let bench = Bench::new().await;
    pay(&bench, 1).await;
    bench.rollback(undolog_store::sessions::RollbackScope::Whole).await.expect("rollback");
    worker_dies(&bench, Place::Worker).await;
    own_process_dies(&bench).await;
    own_process_dies(&bench).await;
    let (walker, call) = begins(&bench, Place::OwnProcess).await;
    walker.step(Some(report_of(&call, CallOutcome::Retry))).await;
    worker_dies(&bench, Place::Worker).await;
    own_process_dies(&bench).await;
    own_process_dies(&bench).await;
    assert_eq!(letters(&bench).await, []);
    own_process_dies(&bench).await;
    assert_eq!(letters(&bench).await, [("POISON".to_owned(), true)]);
    bench.check().await;
}

#[tokio::test]
async fn a_call_that_is_handed_back_is_no_interruption() {
    let bench = Bench::new().await;
    pay(&bench, 1).await;
    for _ in 0..5 {
        let walker = match bench.session_state().await.as_str() {
            "active" => Walker::start(&bench).await,
            _ => Walker::claim(&bench).await,
        };
        let call = Walker::call(walker.step(None).await);
        let report = report_about(call.undo_attempt_id, call.undo_id, Outcome::HandedBack);
        let step = undolog_store::walk::Advance {
            claim: walker.claim.clone(),
            report: Some(report),
            place: Place::Worker,
            may_go_on: false,
            jitter_percent: 0,
        };
        let next = walker.store.run(step).await.expect("a step");
        assert!(matches!(next, Next::HandedOver), "{next:?}");
    }
    let walker = Walker::claim(&bench).await;
    let call = Walker::call(walker.step(None).await);
    walker.step(Some(report_of(&call, CallOutcome::Done))).await;
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
}
