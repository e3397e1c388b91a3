//! Claims and fences.

use undolog_core::retry::CallOutcome;
use undolog_store::{
    sessions::RollbackScope,
    walk::{self, Advance, Next, Place},
};

use crate::{
    bench::Bench,
    walker::{
        Walker, entries, lease_over, outcomes, pay, report_of, rollback_id, time_passes, try_claim,
        worker_store,
    },
};

#[tokio::test]
async fn of_racing_workers_one_claims_and_the_next_claim_waits_for_the_lease() {
    let bench = Bench::new().await;
    pay(&bench, 1).await;
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    let store = worker_store(&bench).await;
    let id = rollback_id(&bench).await;
    let mut tasks = Vec::new();
    for n in 0..16 {
        let (store, org) = (store.clone(), bench.org.id);
        tasks.push(tokio::spawn(async move {
            walk::claim(&store, org, id, &format!("w-{n}")).await.expect("claim")
        }));
    }
    let mut won = Vec::new();
    for task in tasks {
        won.extend(task.await.expect("no panic"));
    }
    assert_eq!(won.len(), 1, "{won:?}");
    assert_eq!(won[0].fence, 1);
    assert!(walk::renew(&store, &won[0]).await.expect("renew"));
    lease_over(&bench).await;
    let second = try_claim(&bench, &store, "w-late").await.expect("the lease is over");
    assert_eq!(second.fence, 2);
    assert!(!walk::renew(&store, &won[0]).await.expect("renew"), "the first holder is fenced off");
    bench.check().await;
}

#[tokio::test]
async fn a_rollback_that_is_not_due_is_not_claimed() {
    let bench = Bench::new().await;
    pay(&bench, 1).await;
    let walker = Walker::start(&bench).await;
    let call = Walker::call(walker.step(None).await);
    let next = walker.step(Some(report_of(&call, CallOutcome::Retry))).await;
    assert!(matches!(next, Next::Waiting), "{next:?}");
    assert!(try_claim(&bench, &walker.store, "w").await.is_none(), "its backoff runs");
    time_passes(&bench).await;
    assert!(try_claim(&bench, &walker.store, "w").await.is_some());
}

#[tokio::test]
async fn an_earlier_holder_settles_nothing_and_its_report_is_kept() {
    let bench = Bench::new().await;
    pay(&bench, 2).await;
    let first = Walker::start(&bench).await;
    let call = Walker::call(first.step(None).await);
    lease_over(&bench).await;
    let second = Walker::claim_as(&bench, "worker-2").await;
    let next = first.step(Some(report_of(&call, CallOutcome::Permanent))).await;
    assert!(matches!(next, Next::Lost), "{next:?}");
    assert_eq!(outcomes(&bench).await, ["permanent"]);
    assert_eq!(entries(&bench).await, ["pending", "running"]);
    assert_eq!(bench.session_state().await, "compensating");
    let next = first.step(None).await;
    assert!(matches!(next, Next::Lost), "and it starts nothing: {next:?}");
    assert_eq!(second.succeed().await.len(), 2);
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
}

#[tokio::test]
async fn a_step_whose_answer_was_lost_is_found_again() {
    let bench = Bench::new().await;
    pay(&bench, 2).await;
    let walker = Walker::start(&bench).await;
    let first = Walker::call(walker.step(None).await);
    let again = Walker::call(walker.step(None).await);
    assert_eq!(first.undo_attempt_id, again.undo_attempt_id, "it was never sent");
    let report = report_of(&first, CallOutcome::Done);
    let second = Walker::call(walker.step(Some(report.clone())).await);
    let same = Walker::call(walker.step(Some(report)).await);
    assert_eq!(second.undo_attempt_id, same.undo_attempt_id);
    assert_eq!(outcomes(&bench).await, ["succeeded", "-"]);
    let next = walker.step(Some(report_of(&second, CallOutcome::Done))).await;
    assert!(matches!(next, Next::Done), "{next:?}");
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
}

#[tokio::test]
async fn a_slice_hands_over_with_a_ticket_that_nobody_is_running() {
    let bench = Bench::new().await;
    pay(&bench, 2).await;
    let walker = Walker::start(&bench).await;
    let call = Walker::call(walker.step(None).await);
    let subject = rollback_id(&bench).await.to_string();
    let begin = "UPDATE apalis.jobs SET status = 'Running' WHERE status = 'Pending' \
        AND job ->> 'subject' = $1 RETURNING id";
    let running: Vec<String> =
        sqlx::query_scalar(begin).bind(&subject).fetch_all(bench.db.pool()).await.expect("run it");
    assert_eq!(running.len(), 1);
    let step = Advance {
        claim: walker.claim.clone(),
        report: Some(report_of(&call, CallOutcome::Done)),
        place: Place::Worker,
        may_go_on: false,
        jitter_percent: 0,
    };
    let next = walker.store.run(step).await.expect("a step");
    assert!(matches!(next, Next::HandedOver), "{next:?}");
    assert_eq!(entries(&bench).await, ["pending", "compensated"]);
    acknowledge(&bench, &running).await;
    assert_eq!(pending(&bench).await, 1, "the acknowledgement erases it not");
    let next = Walker::claim_as(&bench, "worker-2").await;
    assert_eq!(next.succeed().await.len(), 1);
    bench.check().await;
}

/// The queue library's acknowledgement: by id, whatever has become of the row.
async fn acknowledge(bench: &Bench, ids: &[String]) {
    sqlx::query("UPDATE apalis.jobs SET status = 'Done', done_at = now() WHERE id = ANY ($1)")
        .bind(ids)
        .execute(bench.db.pool())
        .await
        .expect("acknowledge");
}

async fn pending(bench: &Bench) -> i64 {
    sqlx::query_scalar(
        "SELECT count(*) FROM apalis.jobs WHERE job ->> 'subject' = $1 AND status = 'Pending'",
    )
    .bind(rollback_id(bench).await.to_string())
    .fetch_one(bench.db.pool())
    .await
    .expect("tickets")
}

#[tokio::test]
async fn no_acknowledgement_erases_the_next_ticket_whoever_claims_without_one() {
    let bench = Bench::new().await;
    if !undolog_store::testkit::guard_on("ticket.free") {
        let first = "CREATE OR REPLACE FUNCTION undolog_enqueue_one_of(ticket_ids text[], \
            queue text, job jsonb, run_at timestamptz) RETURNS void LANGUAGE sql \
            SECURITY DEFINER AS 'SELECT undolog_enqueue($1[1], $2, $3, $4)'";
        sqlx::raw_sql(first).execute(bench.db.pool()).await.expect("one ticket");
    }
    pay(&bench, 8).await;
    let mut walker = Walker::start(&bench).await;
    let mut running: Vec<String> = Vec::new();
    for lingering in [false, true, true, false, true, false] {
        // Some claims come from a ticket, which its handler runs until after it has handed over;
        // others from a handler that goes on with whatever is due.
        if !lingering {
            let begin = "UPDATE apalis.jobs SET status = 'Running' WHERE status = 'Pending' \
                AND job ->> 'kind' = 'rollback' RETURNING id";
            let begun: Vec<String> =
                sqlx::query_scalar(begin).fetch_all(bench.db.pool()).await.expect("run it");
            running.extend(begun);
        }
        let call = Walker::call(walker.step(None).await);
        let step = Advance {
            claim: walker.claim.clone(),
            report: Some(report_of(&call, CallOutcome::Done)),
            place: Place::Worker,
            may_go_on: false,
            jitter_percent: 0,
        };
        walker.store.run(step).await.expect("a step");
        acknowledge(&bench, &std::mem::take(&mut running)).await;
        assert_eq!(pending(&bench).await, 1, "lingering: {lingering}");
        walker = Walker::claim(&bench).await;
    }
    let rows = "SELECT count(*)::text FROM apalis.jobs WHERE job ->> 'kind' = 'rollback' \
        AND $1::uuid IS NOT NULL";
    let rows: i64 = bench.text(rows).await.parse().expect("a number");
    assert!(rows <= 3, "{rows} rows");
    bench.check().await;
}
