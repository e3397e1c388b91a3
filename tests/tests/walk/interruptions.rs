//! Workers that die in a call.

use undolog_core::retry::CallOutcome;
use undolog_store::walk::{Company, Next, Outcome};

use crate::{
    bench::Bench,
    walker::{
        SHARED, Walker, entries, lease_over, letters, outcomes, pay, report_about, report_of,
        time_passes,
    },
};

/// A worker claims, begins a call in this company, and dies in it.
async fn dies(bench: &Bench, company: Company) {
    let mut walker = Walker::claim(bench).await;
    walker.company = company;
    if let Next::Waiting = walker.step(None).await {
        // The step before found the interruption: now its backoff is over.
        time_passes(bench).await;
        walker = Walker::claim(bench).await;
        walker.company = company;
        Walker::call(walker.step(None).await);
    }
    lease_over(bench).await;
}

#[tokio::test]
async fn an_interrupted_call_is_not_counted_and_runs_alone_after_a_backoff() {
    let bench = Bench::new().await;
    pay(&bench, 1).await;
    bench.rollback(undolog_store::sessions::RollbackScope::Whole).await.expect("rollback");
    dies(&bench, SHARED).await;
    let walker = Walker::claim(&bench).await;
    let next = walker.step(None).await;
    assert!(matches!(next, Next::Waiting), "with backoff: {next:?}");
    assert_eq!(outcomes(&bench).await, ["interrupted"]);
    time_passes(&bench).await;
    let mut walker = Walker::claim(&bench).await;
    let next = walker.step(None).await;
    assert!(matches!(next, Next::NeedsAlone), "{next:?}");
    walker.company = Company::Alone;
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
async fn three_deaths_in_a_row_while_alone_are_poison() {
    for (first, calls) in [(Company::Shared { is_only_one: true }, 3), (SHARED, 4)] {
        let bench = Bench::new().await;
        pay(&bench, 2).await;
        bench.rollback(undolog_store::sessions::RollbackScope::Whole).await.expect("rollback");
        dies(&bench, first).await;
        for _ in 1..calls {
            assert_eq!(letters(&bench).await, []);
            dies(&bench, Company::Alone).await;
        }
        let walker = Walker::claim(&bench).await;
        let next = walker.step(None).await;
        assert!(matches!(next, Next::Done), "{next:?}");
        assert_eq!(letters(&bench).await, [("POISON".to_owned(), true)]);
        assert_eq!(outcomes(&bench).await, vec!["interrupted"; calls]);
        assert_eq!(entries(&bench).await, ["pending", "failed"]);
        assert_eq!(bench.session_state().await, "halted");
        bench.check().await;
    }
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
            company: SHARED,
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
