//! The start of rollbacks, without a worker: what is voided, refused, waited for and widened.

use serde_json::json;
use undolog_core::{Reason, state::FailedEffect};
use undolog_store::sessions::RollbackScope;

use crate::bench::{Bench, awaiting, refused};

#[tokio::test]
async fn a_failed_tool_fails_the_session_and_starts_its_rollback() {
    let bench = Bench::new().await;
    bench.commit(bench.grant(1, "pay").await, &json!(1)).await.expect("commit");
    let failing = bench.grant(2, "pay").await;
    bench.fail(failing, FailedEffect::MaybeApplied).await.expect("fail");
    assert_eq!(bench.session_state().await, "compensating");
    let tickets: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM apalis.jobs j JOIN undolog_rollbacks r \
         ON j.job ->> 'subject' = r.rollback_id::text WHERE j.status = 'Pending'",
    )
    .fetch_one(bench.db.pool())
    .await
    .expect("count");
    assert_eq!(tickets, 1, "the ticket is in the same transaction");
    bench.check().await;
}

#[tokio::test]
async fn an_empty_stack_is_compensated_at_once() {
    let bench = Bench::new().await;
    bench.begin().await;
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    assert_eq!(bench.session_state().await, "compensated");
    let again = bench.rollback(RollbackScope::Whole).await.expect("the same answer");
    assert_eq!(again.state.as_str(), "compensated");
    bench.check().await;
}

#[tokio::test]
async fn pending_and_unspent_approvals_die_with_the_start() {
    let bench = Bench::new().await;
    bench.commit(bench.grant(1, "pay").await, &json!(1)).await.expect("commit");
    let (approved, first) = awaiting(&bench.ask(2, "wipe").await.expect("asked"));
    let (pending, second) = awaiting(&bench.ask(3, "wipe").await.expect("asked"));
    bench.approve(first, None).await.expect("approve");
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    assert_eq!(bench.effect_state(approved).await, "rejected");
    assert_eq!(bench.effect_state(pending).await, "rejected");
    refused(bench.approve(second, None).await, Reason::ApprovalAlreadyResolved);
    refused(bench.ask(2, "wipe").await, Reason::ApprovalVoided);
    let pending =
        bench.text("SELECT approvals_pending::text FROM undolog_sessions WHERE session_id = $1");
    assert_eq!(pending.await, "0");
    bench.check().await;
}

#[tokio::test]
async fn a_rollback_waits_for_live_grants() {
    let bench = Bench::new().await;
    let running = bench.grant(1, "pay").await;
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    let waits = bench
        .text(
            "SELECT state || (due_at > now() + interval '10 minutes') FROM undolog_rollbacks \
             WHERE session_id = $1",
        )
        .await;
    assert_eq!(waits, "drainingtrue", "as long as the grant's lease");
    refused(bench.commit(running, &json!(1)).await, Reason::SessionCompensating);
    assert_eq!(bench.effect_state(running).await, "committed", "recorded all the same");
    let due = bench
        .text("SELECT (due_at <= now())::text FROM undolog_rollbacks WHERE session_id = $1")
        .await;
    assert_eq!(due, "true", "the last report makes it due");
    bench.check().await;
}

#[tokio::test]
async fn residue_stops_a_partial_rollback_but_not_a_whole_one() {
    let bench = Bench::new().await;
    let savepoint = bench.savepoint_after_begin().await;
    let (effect, approval) = awaiting(&bench.ask(1, "wipe").await.expect("asked"));
    bench.approve(approval, None).await.expect("approve");
    bench.grant(1, "wipe").await;
    bench.commit(effect, &json!(1)).await.expect("commit");
    refused(bench.rollback(RollbackScope::ToSavepoint(savepoint)).await, Reason::Residue);
    refused(bench.rollback(RollbackScope::ToSavepoint(99)).await, Reason::SavepointNotFound);
    refused(bench.rollback(RollbackScope::ToSavepoint(0)).await, Reason::SavepointNotFound);
    let reply = bench.rollback(RollbackScope::Whole).await.expect("rollback");
    assert_eq!(reply.state.as_str(), "compensated");
    let residue =
        bench.text("SELECT residue_count::text FROM undolog_sessions WHERE session_id = $1").await;
    assert_eq!(residue, "1");
    bench.check().await;
}

#[tokio::test]
async fn a_partial_rollback_takes_only_what_is_above_its_savepoint() {
    let bench = Bench::new().await;
    bench.begin().await;
    bench.commit(bench.grant(1, "pay").await, &json!(1)).await.expect("commit");
    let (kept, _) = awaiting(&bench.ask(2, "wipe").await.expect("asked"));
    let savepoint = bench.savepoint().await;
    let (voided, _) = awaiting(&bench.ask(3, "wipe").await.expect("asked"));
    let position = u32::try_from(savepoint.position).expect("a position");
    let reply = bench.rollback(RollbackScope::ToSavepoint(position)).await.expect("rollback");
    assert_eq!(reply.state.as_str(), "awaiting_approval", "nothing to undo: back at once");
    assert_eq!(reply.next_step_index, 4);
    assert_eq!(bench.effect_state(kept).await, "pending");
    assert_eq!(bench.effect_state(voided).await, "rejected");
    bench.check().await;
}

#[tokio::test]
async fn a_step_is_a_boundary_only_when_the_order_agrees() {
    let bench = Bench::new().await;
    bench.commit(bench.grant(5, "pay").await, &json!(1)).await.expect("commit");
    bench.commit(bench.grant(2, "pay").await, &json!(1)).await.expect("commit");
    refused(bench.rollback(RollbackScope::ToStep(3)).await, Reason::StepOrder);
    let reply = bench.rollback(RollbackScope::ToStep(1)).await.expect("rollback");
    assert_eq!(reply.state.as_str(), "compensating");
    let wider = bench.rollback(RollbackScope::Whole).await.expect("a wider request");
    assert_eq!(wider.rollback_id, reply.rollback_id, "the live rollback is widened");
    let kind = bench.text("SELECT kind FROM undolog_rollbacks WHERE session_id = $1").await;
    assert_eq!(kind, "whole");
    bench.check().await;
}

impl Bench {
    async fn savepoint_after_begin(&self) -> u32 {
        self.begin().await;
        u32::try_from(self.savepoint().await.position).expect("a position")
    }
}
