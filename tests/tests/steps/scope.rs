//! What a rollback undoes and what it must leave alone: scopes have two ends, counted in positions,
//! and whatever comes late is undone by itself.

use serde_json::json;
use undolog_core::{
    Reason,
    retry::CallOutcome,
    state::{FailedEffect, SessionState},
};
use undolog_store::{
    operate::Resolution,
    sessions::{FailSession, Heartbeat, RollbackScope},
    walk::Next,
};
use uuid::Uuid;

use crate::{
    bench::{Bench, awaiting, refused, replayed},
    operate_kit::{commit_late, lost_payment, lost_wipe},
    walker::{Walker, entries, letters, pay, report_of, rollback_id},
};

/// A payment that committed at a step.
async fn paid(bench: &Bench, step: u32) -> Uuid {
    let effect = bench.grant(step, "pay").await;
    bench.commit(effect, &json!({"id": format!("p-{step}")})).await.expect("commit");
    effect
}

async fn to_savepoint(bench: &Bench, position: i32) {
    let position = u32::try_from(position).expect("a position");
    bench.rollback(RollbackScope::ToSavepoint(position)).await.expect("rollback");
}

async fn states(bench: &Bench, effects: &[Uuid]) -> Vec<String> {
    let mut states = Vec::new();
    for effect in effects {
        states.push(bench.effect_state(*effect).await);
    }
    states
}

async fn number(bench: &Bench, sql: &str) -> i64 {
    sqlx::query_scalar(sql).bind(bench.session).fetch_one(bench.db.pool()).await.expect(sql)
}

/// A lost call at step 2 that a partial rollback has undone, and two payments after that.
async fn undone_then_two_more(bench: &Bench) -> (Uuid, [Uuid; 2]) {
    paid(bench, 1).await;
    let point = bench.savepoint().await.position;
    let lost = lost_payment(bench, 2).await;
    to_savepoint(bench, point).await;
    assert_eq!(Walker::claim(bench).await.succeed().await.len(), 1);
    assert_eq!(bench.session_state().await, "active");
    (lost, [paid(bench, 3).await, paid(bench, 4).await])
}

#[tokio::test]
async fn a_late_commit_undoes_its_own_call_and_no_work_done_since() {
    let bench = Bench::new().await;
    bench.compensation("undo_pay_again", json!({"repeatable": true})).await;
    bench
        .tool("pay", undolog_core::Tier::Compensable, |tool| {
            tool.compensation_ref = "undo_pay_again".into();
            tool.tool_version = "2.0.0".into();
        })
        .await;
    let (lost, since) = undone_then_two_more(&bench).await;
    bench.commit(lost, &json!({"id": "late"})).await.expect("the agent goes on");
    assert_eq!(bench.session_state().await, "compensating");
    let made = Walker::claim(&bench).await.succeed().await;
    assert_eq!(made.iter().map(|call| call.0).collect::<Vec<_>>(), [lost]);
    assert_eq!(states(&bench, &since).await, ["committed", "committed"]);
    assert_eq!(bench.session_state().await, "active");
    assert_eq!(
        entries(&bench).await,
        ["pending", "compensated", "pending", "pending", "compensated"]
    );
    bench.complete().await.expect("the agent completes");
    bench.check().await;
}

#[tokio::test]
async fn a_retried_dead_letter_of_an_ended_partial_rollback_undoes_its_own_call_alone() {
    let bench = Bench::new().await;
    let (lost, since) = undone_then_two_more(&bench).await;
    commit_late(&bench, lost).await;
    assert_eq!(bench.session_state().await, "active", "a dead letter stops nothing");
    bench.retry_letter(bench.the_letter().await).await.expect("retry");
    let made = Walker::claim(&bench).await.succeed().await;
    assert_eq!(made.iter().map(|call| call.0).collect::<Vec<_>>(), [lost]);
    assert_eq!(states(&bench, &since).await, ["committed", "committed"]);
    assert_eq!(bench.session_state().await, "active");
    bench.check().await;
}

#[tokio::test]
async fn a_skipped_call_that_happened_after_all_is_undone_alone() {
    let bench = Bench::new().await;
    bench.continue_on_failure().await;
    paid(&bench, 1).await;
    let point = bench.savepoint().await.position;
    let failed = bench.grant(2, "pay").await;
    let other = paid(&bench, 3).await;
    bench.fail(failed, FailedEffect::NotApplied).await.expect("failed");
    to_savepoint(&bench, point).await;
    assert_eq!(Walker::claim(&bench).await.succeed().await.len(), 1);
    let since = [paid(&bench, 4).await, paid(&bench, 5).await];
    bench.commit(failed, &json!({"id": "late"})).await.expect("recorded");
    let made = Walker::claim(&bench).await.succeed().await;
    assert_eq!(made.iter().map(|call| call.0).collect::<Vec<_>>(), [failed]);
    assert_eq!(states(&bench, &since).await, ["committed", "committed"]);
    assert_eq!(states(&bench, &[other, failed]).await, ["compensated", "compensated"]);
    assert_eq!(bench.session_state().await, "active");
    bench.check().await;
}

#[tokio::test]
async fn a_late_irreversible_call_is_residue_and_moves_nothing() {
    let bench = Bench::new().await;
    bench.continue_on_failure().await;
    paid(&bench, 1).await;
    let point = bench.savepoint().await.position;
    let wiped = bench.running_wipe(2).await;
    bench.fail(wiped, FailedEffect::NotApplied).await.expect("failed");
    let undone = paid(&bench, 3).await;
    to_savepoint(&bench, point).await;
    Walker::claim(&bench).await.succeed().await;
    let since = [paid(&bench, 4).await, paid(&bench, 5).await];
    bench.commit(wiped, &json!("gone")).await.expect("recorded");
    assert_eq!(bench.session_state().await, "active");
    assert_eq!(states(&bench, &since).await, ["committed", "committed"]);
    assert_eq!(states(&bench, &[undone, wiped]).await, ["compensated", "committed"]);
    let residue = "SELECT residue_count::bigint FROM undolog_sessions WHERE session_id = $1";
    assert_eq!(number(&bench, residue).await, 1);
    // The whole session's rollback meets it again, and counts it once.
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    assert_eq!(Walker::claim(&bench).await.succeed().await.len(), 3);
    assert_eq!(number(&bench, residue).await, 1);
    bench.check().await;
}

#[tokio::test]
async fn a_step_back_of_the_clock_puts_no_call_into_an_ended_rollback() {
    let bench = Bench::new().await;
    paid(&bench, 1).await;
    let point = bench.savepoint().await.position;
    paid(&bench, 2).await;
    to_savepoint(&bench, point).await;
    Walker::claim(&bench).await.succeed().await;
    // As if the rollback had ended at a time that the clock has not reached again.
    bench
        .run_sql("UPDATE undolog_rollbacks SET finished_at = finished_at + interval '1 hour'")
        .await;
    let healthy = paid(&bench, 3).await;
    assert_eq!(bench.effect_state(healthy).await, "committed");
    assert_eq!(bench.session_state().await, "active");
    let live = "SELECT count(*) FROM undolog_rollbacks WHERE session_id = $1 \
        AND state IN ('draining', 'walking', 'halted')";
    assert_eq!(number(&bench, live).await, 0);
    bench.check().await;
}

#[tokio::test]
async fn what_was_halted_while_it_drained_drains_again() {
    let bench = Bench::new().await;
    bench.run_sql("UPDATE undolog_orgs SET settle_ms = 0").await;
    let wiped = bench.running_wipe(1).await;
    let kept = paid(&bench, 2).await;
    let point = bench.savepoint().await.position;
    paid(&bench, 3).await;
    to_savepoint(&bench, point).await;
    let walker = Walker::claim(&bench).await;
    let call = Walker::call(walker.step(None).await);
    bench.rollback(RollbackScope::Whole).await.expect("widened");
    let next = walker.step(Some(report_of(&call, CallOutcome::Permanent))).await;
    assert!(matches!(next, Next::Done), "{next:?}");
    assert_eq!(bench.session_state().await, "halted");
    bench.skip_letter(bench.the_letter().await).await.expect("skip");
    // The irreversible call may still be running: nothing below it is undone meanwhile.
    bench.run_sql("UPDATE undolog_rollbacks SET due_at = now() - interval '1 second'").await;
    let walker = Walker::claim(&bench).await;
    assert!(walker.succeed().await.is_empty());
    assert_eq!(bench.effect_state(kept).await, "committed");
    bench.expire(wiped).await;
    bench.run_sql("UPDATE undolog_rollbacks SET due_at = now() - interval '1 second'").await;
    assert_eq!(Walker::claim(&bench).await.succeed().await.len(), 1);
    assert_eq!(bench.effect_state(wiped).await, "unknown");
    assert_eq!(bench.session_state().await, "halted");
    let open: Vec<_> = letters(&bench).await.into_iter().filter(|letter| letter.1).collect();
    assert_eq!(open, [("OUTCOME_UNKNOWN".to_owned(), true)]);
    bench.check().await;
}

#[tokio::test]
async fn a_failure_below_a_partial_rollback_fails_the_session() {
    let bench = Bench::new().await;
    let running = bench.grant(1, "pay").await;
    let point = bench.savepoint().await.position;
    let above = paid(&bench, 2).await;
    to_savepoint(&bench, point).await;
    bench.fail(running, FailedEffect::MaybeApplied).await.expect("failed");
    let made = Walker::claim(&bench).await.succeed().await;
    assert_eq!(made.iter().map(|call| call.0).collect::<Vec<_>>(), [above, running]);
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
}

#[tokio::test]
async fn a_session_that_fails_during_a_partial_rollback_is_not_given_back() {
    for rollback in [true, false] {
        let bench = Bench::new().await;
        let below = paid(&bench, 1).await;
        let point = bench.savepoint().await.position;
        paid(&bench, 2).await;
        to_savepoint(&bench, point).await;
        let (caller, session_id, reason) = (bench.agent(), bench.session, "lost".to_owned());
        let step = FailSession { caller, session_id, reason, rollback };
        bench.store.run(step).await.expect("fail the session");
        Walker::claim(&bench).await.succeed().await;
        let (session, effect) =
            if rollback { ("compensated", "compensated") } else { ("failed", "committed") };
        assert_eq!(bench.session_state().await, session);
        assert_eq!(bench.effect_state(below).await, effect);
        bench.check().await;
    }
}

#[tokio::test]
async fn a_rejection_below_a_partial_rollback_halts_the_session_when_it_comes_back() {
    let bench = Bench::new().await;
    let (_, approval) = awaiting(&bench.ask(1, "wipe").await.expect("asked"));
    let point = bench.savepoint().await.position;
    // Another approval, above the savepoint, gives the rollback a reason.
    let effect = bench.running_wipe(2).await;
    bench.continue_on_failure().await;
    bench.fail(effect, FailedEffect::Unknown).await.expect("unknown");
    bench.run_sql("UPDATE undolog_orgs SET settle_ms = 3600000").await;
    to_savepoint(&bench, point).await;
    assert_eq!(bench.session_state().await, "compensating");
    bench.reject(approval).await.expect("rejected");
    assert_eq!(bench.session_state().await, "compensating");
    bench.resolve_effect(effect, Resolution::NotApplied).await.expect("known");
    bench.run_sql("UPDATE undolog_rollbacks SET due_at = now() - interval '1 second'").await;
    Walker::claim(&bench).await.succeed().await;
    assert_eq!(bench.session_state().await, "halted");
    bench.check().await;
}

#[tokio::test]
async fn late_work_of_a_completed_session_waits_for_a_human() {
    let bench = Bench::new().await;
    let (lost, since) = undone_then_two_more(&bench).await;
    bench.complete().await.expect("complete");
    commit_late(&bench, lost).await;
    assert_eq!(bench.session_state().await, "completed");
    assert_eq!(letters(&bench).await, [("LATE_COMMIT".to_owned(), true)]);
    bench.retry_letter(bench.the_letter().await).await.expect("retry");
    let made = Walker::claim(&bench).await.succeed().await;
    assert_eq!(made.iter().map(|call| call.0).collect::<Vec<_>>(), [lost]);
    assert_eq!(states(&bench, &since).await, ["committed", "committed"]);
    assert_eq!(bench.session_state().await, "completed");
    bench.check().await;
}

#[tokio::test]
async fn a_call_below_a_live_rollback_that_happened_after_all_waits_for_its_end() {
    let bench = Bench::new().await;
    bench.continue_on_failure().await;
    let failed = bench.grant(1, "pay").await;
    bench.fail(failed, FailedEffect::NotApplied).await.expect("failed");
    let point = bench.savepoint().await.position;
    let above = paid(&bench, 2).await;
    to_savepoint(&bench, point).await;
    let walker = Walker::claim(&bench).await;
    let call = Walker::call(walker.step(None).await);
    bench.commit(failed, &json!({"id": "late"})).await.expect("recorded");
    let next = walker.step(Some(report_of(&call, CallOutcome::Done))).await;
    assert!(matches!(next, Next::Done), "{next:?}");
    assert_eq!(states(&bench, &[above, failed]).await, ["compensated", "committed"]);
    assert_eq!(entries(&bench).await, ["skipped:not_applied", "compensated", "pending"]);
    assert_eq!(bench.session_state().await, "active");
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    let made = Walker::claim(&bench).await.succeed().await;
    assert_eq!(made.iter().map(|call| call.0).collect::<Vec<_>>(), [failed]);
    bench.check().await;
}

#[tokio::test]
async fn while_late_work_is_undone_the_agent_waits_and_goes_on() {
    let bench = Bench::new().await;
    let (lost, since) = undone_then_two_more(&bench).await;
    let running = bench.grant(5, "pay").await;
    commit_late(&bench, lost).await;
    bench.retry_letter(bench.the_letter().await).await.expect("retry");
    refused(bench.ask(6, "pay").await, Reason::UndoRunning);
    refused(bench.ask(3, "pay").await, Reason::UndoRunning);
    refused(bench.complete().await, Reason::UndoRunning);
    let (caller, session_id) = (bench.agent(), bench.session);
    let beat = Heartbeat { caller, session_id, grants: vec![(running, 1)] };
    let beat = bench.store.run(beat).await.expect("heartbeat");
    assert!(!beat.stop && !beat.grants[0].stop, "{beat:?}");
    bench.commit(running, &json!({"id": "p-5"})).await.expect("recorded, and nothing is wrong");
    Walker::claim(&bench).await.succeed().await;
    assert_eq!(states(&bench, &since).await, ["committed", "committed"]);
    bench.grant(6, "pay").await;
    bench.check().await;
}

#[tokio::test]
async fn a_call_that_an_earlier_attempt_made_is_replayed_and_not_granted_again() {
    let bench = Bench::new().await;
    bench.continue_on_failure().await;
    let effect = bench.grant(1, "pay").await;
    bench.fail(effect, FailedEffect::NotApplied).await.expect("failed");
    assert_eq!(bench.grant(1, "pay").await, effect);
    bench.commit_attempt(effect, 1, &json!({"id": "first"})).await.expect("recorded");
    bench.fail(effect, FailedEffect::NotApplied).await.expect("failed");
    let reply = bench.ask(1, "pay").await.expect("a replay");
    assert_eq!(replayed(&reply), json!({"id": "first"}));
    assert_eq!(bench.effect_state(effect).await, "committed");
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    assert_eq!(Walker::claim(&bench).await.succeed().await.len(), 1);
    assert_eq!(bench.effect_state(effect).await, "compensated");
    bench.check().await;
}

#[tokio::test]
async fn an_irreversible_call_that_an_earlier_attempt_made_takes_its_approval_away() {
    for approved in [false, true] {
        let bench = Bench::new().await;
        bench.continue_on_failure().await;
        let effect = bench.running_wipe(1).await;
        bench.fail(effect, FailedEffect::NotApplied).await.expect("failed");
        let (_, second) = awaiting(&bench.ask(1, "wipe").await.expect("asked again"));
        bench.commit_attempt(effect, 1, &json!("gone")).await.expect("recorded");
        if approved {
            bench.approve(second, None).await.expect("approve");
        }
        let reply = bench.ask(1, "wipe").await.expect("a replay");
        assert_eq!(replayed(&reply), json!("gone"));
        assert_eq!(bench.session_state().await, "active");
        bench.rollback(RollbackScope::Whole).await.expect("rollback");
        let residue = "SELECT residue_count::bigint FROM undolog_sessions WHERE session_id = $1";
        assert_eq!(number(&bench, residue).await, 1);
        bench.check().await;
    }
}

#[tokio::test]
async fn a_stale_commit_of_an_irreversible_call_that_is_asked_for_again_is_residue() {
    let bench = Bench::new().await;
    bench.continue_on_failure().await;
    let effect = bench.running_wipe(1).await;
    bench.fail(effect, FailedEffect::NotApplied).await.expect("failed");
    awaiting(&bench.ask(1, "wipe").await.expect("asked again"));
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    assert_eq!(bench.session_state().await, "compensated");
    let heard = bench.commit_attempt(effect, 1, &json!("gone")).await;
    refused(heard, Reason::SessionCompensated);
    let residue = "SELECT residue_count::bigint FROM undolog_sessions WHERE session_id = $1";
    assert_eq!(number(&bench, residue).await, 1);
    bench.check().await;
}

#[tokio::test]
async fn a_contradicted_call_is_granted_again_by_nothing() {
    let bench = Bench::new().await;
    let effect = lost_payment(&bench, 1).await;
    bench.resolve_effect(effect, Resolution::NotApplied).await.expect("known");
    refused(bench.commit(effect, &json!({"id": "late"})).await, Reason::Contradicted);
    refused(bench.ask(1, "pay").await, Reason::Contradicted);
    bench.resolve_letter(bench.the_letter().await).await.expect("by hand");
    refused(bench.ask(1, "pay").await, Reason::AlreadyUndone);
    bench.check().await;

    let bench = Bench::new().await;
    let effect = lost_wipe(&bench, 1).await;
    bench.resolve_effect(effect, Resolution::NotApplied).await.expect("known");
    refused(bench.commit(effect, &json!("gone")).await, Reason::Contradicted);
    refused(bench.ask(1, "wipe").await, Reason::Contradicted);
    bench.resolve_letter(bench.the_letter().await).await.expect("by hand");
    assert_eq!(replayed(&bench.ask(1, "wipe").await.expect("a replay")), json!("gone"));
    bench.check().await;
}

#[tokio::test]
async fn an_attempt_that_an_operator_denied_contradicts_also_after_the_next_was_granted() {
    let bench = Bench::new().await;
    let effect = lost_payment(&bench, 1).await;
    bench.resolve_effect(effect, Resolution::NotApplied).await.expect("known");
    assert_eq!(bench.grant(1, "pay").await, effect);
    let heard = bench.commit_attempt(effect, 1, &json!({"id": "first"})).await;
    refused(heard, Reason::Contradicted);
    bench.fail(effect, FailedEffect::NotApplied).await.expect("failed");
    refused(bench.ask(1, "pay").await, Reason::Contradicted);
    bench.check().await;
}

#[tokio::test]
async fn an_idempotent_call_whose_first_attempt_happened_keeps_its_undo() {
    let bench = Bench::new().await;
    bench.continue_on_failure().await;
    let effect = bench.grant(1, "put").await;
    bench.fail(effect, FailedEffect::Unknown).await.expect("unknown");
    assert_eq!(bench.grant(1, "put").await, effect);
    bench.commit_attempt(effect, 1, &json!({"id": "first"})).await.expect("recorded");
    bench.fail(effect, FailedEffect::NotApplied).await.expect("failed");
    assert_eq!(entries(&bench).await, ["pending"]);
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    assert_eq!(Walker::claim(&bench).await.succeed().await.len(), 1);
    bench.check().await;
}

#[tokio::test]
async fn a_partial_rollback_asks_before_it_waits_for_an_irreversible_call() {
    let bench = Bench::new().await;
    paid(&bench, 1).await;
    let point = bench.savepoint().await.position;
    let effect = bench.running_wipe(2).await;
    let position = u32::try_from(point).expect("a position");
    let outcome = bench.rollback(RollbackScope::ToSavepoint(position)).await;
    refused(outcome, Reason::Residue);
    assert_eq!(bench.effect_state(effect).await, "approved");
    assert_eq!(bench.session_state().await, "active");
    bench.check().await;
}

#[tokio::test]
async fn the_next_rollback_is_the_newest_whatever_the_clock_says() {
    let bench = Bench::new().await;
    pay(&bench, 1).await;
    let point = bench.savepoint().await.position;
    paid(&bench, 2).await;
    to_savepoint(&bench, point).await;
    Walker::claim(&bench).await.succeed().await;
    bench.run_sql("UPDATE undolog_rollbacks SET created_at = created_at + interval '1 hour'").await;
    let first = rollback_id(&bench).await;
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    let whole = bench.text(
        "SELECT rollback_id::text FROM undolog_rollbacks WHERE session_id = $1 AND kind = 'whole'",
    );
    let whole = whole.await;
    assert_ne!(whole, first.to_string());
    bench.run_sql("UPDATE undolog_rollbacks SET due_at = now() - interval '1 second'").await;
    let store = crate::walker::worker_store(&bench).await;
    let id = whole.parse().expect("an id");
    let claim = undolog_store::walk::claim(&store, bench.org.id, id, "w").await.expect("claim");
    let place = undolog_store::walk::Place::Worker;
    Walker { store, claim: claim.expect("due"), place }.succeed().await;
    assert_eq!(bench.session_state().await, "compensated");
    let again = bench.rollback(RollbackScope::Whole).await.expect("answered as it is");
    assert_eq!(again.state, SessionState::Compensated);
    assert_eq!(again.rollback_id.map(|id| id.to_string()), Some(whole));
    bench.check().await;
}
