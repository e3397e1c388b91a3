//! The drain: nothing is undone under a call that may still run.

use serde_json::json;
use undolog_store::{sessions::RollbackScope, walk::Next};

use crate::{
    bench::{Bench, awaiting, executed},
    walker::{Walker, entries, letters, pay, run, time_passes, try_claim, worker_store},
};

#[tokio::test]
async fn a_live_grant_of_either_tier_is_waited_for_and_its_report_makes_the_rollback_due() {
    for tool in ["pay", "wipe"] {
        let bench = Bench::new().await;
        pay(&bench, 1).await;
        let running = match tool {
            "pay" => bench.grant(2, "pay").await,
            _ => {
                let (_, approval) = awaiting(&bench.ask(2, "wipe").await.expect("asked"));
                bench.approve(approval, None).await.expect("approve");
                executed(&bench.ask(2, "wipe").await.expect("a grant"))
            }
        };
        bench.rollback(RollbackScope::Whole).await.expect("rollback");
        let store = worker_store(&bench).await;
        assert!(try_claim(&bench, &store, "w").await.is_none(), "{tool}: not due");
        time_passes(&bench).await;
        let walker = Walker::claim(&bench).await;
        let next = walker.step(None).await;
        assert!(matches!(next, Next::Waiting), "{tool}: {next:?}");
        assert_eq!(entries(&bench).await.first().map(String::as_str), Some("pending"));
        let _heard = bench.commit(running, &json!({"id": "late"})).await;
        let walker = Walker::claim(&bench).await;
        let made = walker.succeed().await;
        assert_eq!(made.len(), if tool == "pay" { 2 } else { 1 }, "{tool}");
        assert_eq!(bench.session_state().await, "compensated");
        let residue =
            bench.text("SELECT residue_count::text FROM undolog_sessions WHERE session_id = $1");
        assert_eq!(residue.await, if tool == "pay" { "0" } else { "1" });
        bench.check().await;
    }
}

#[tokio::test]
async fn a_grant_that_runs_out_in_the_drain_becomes_unknown_there() {
    let bench = Bench::new().await;
    pay(&bench, 1).await;
    let gone = bench.grant(2, "pay").await;
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    bench.expire(gone).await;
    time_passes(&bench).await;
    let walker = Walker::claim(&bench).await;
    let next = walker.step(None).await;
    assert!(matches!(next, Next::Waiting), "one more lease: {next:?}");
    assert_eq!(bench.effect_state(gone).await, "unknown");
    let lost = "UPDATE undolog_effect_log SET lost_at = now() - interval '1 day' \
        WHERE lost_at IS NOT NULL";
    run(bench.db.pool(), lost).await;
    time_passes(&bench).await;
    let walker = Walker::claim(&bench).await;
    assert_eq!(walker.succeed().await.len(), 2);
    bench.check().await;
}

#[tokio::test]
async fn an_outage_of_ours_ends_no_drain() {
    let bench = Bench::new().await;
    let running = bench.grant(1, "pay").await;
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    bench.expire(running).await;
    run(bench.db.pool(), "UPDATE undolog_service SET last_tick_at = now() - interval '16 seconds'")
        .await;
    time_passes(&bench).await;
    let walker = Walker::claim(&bench).await;
    let next = walker.step(None).await;
    assert!(matches!(next, Next::Waiting), "{next:?}");
    assert_eq!(bench.effect_state(running).await, "executing", "nobody ticks: nothing expires");
    let pause = "SELECT (due_at - clock_timestamp() > interval '3 seconds')::text \
        FROM undolog_rollbacks WHERE session_id = $1";
    assert_eq!(bench.text(pause).await, "false", "it is looked at again soon at first");
    let long =
        "UPDATE undolog_rollbacks SET created_at = created_at - interval '1 hour', due_at = now()";
    run(bench.db.pool(), long).await;
    let walker = Walker::claim(&bench).await;
    assert!(matches!(walker.step(None).await, Next::Waiting));
    assert_eq!(bench.text(pause).await, "true", "and seldom after an hour");
    bench.check().await;
}

#[tokio::test]
async fn an_undecided_irreversible_effect_is_one_dead_letter_and_the_walk_goes_on() {
    let bench = Bench::new().await;
    pay(&bench, 1).await;
    let (effect, approval) = awaiting(&bench.ask(2, "wipe").await.expect("asked"));
    bench.approve(approval, None).await.expect("approve");
    executed(&bench.ask(2, "wipe").await.expect("a grant"));
    bench.expire(effect).await;
    run(bench.db.pool(), "UPDATE undolog_orgs SET settle_ms = 0").await;
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    time_passes(&bench).await;
    let walker = Walker::claim(&bench).await;
    let made = walker.succeed().await;
    assert_eq!(made.len(), 1, "the walk goes on");
    assert_eq!(letters(&bench).await, [("OUTCOME_UNKNOWN".to_owned(), true)]);
    assert_eq!(bench.session_state().await, "halted", "and halts at the end");
    let _heard = bench.commit(effect, &json!("gone")).await;
    assert_eq!(letters(&bench).await, [("OUTCOME_UNKNOWN".to_owned(), false)]);
    let walker = Walker::claim(&bench).await;
    walker.succeed().await;
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
}
