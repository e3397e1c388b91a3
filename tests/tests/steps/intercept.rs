//! The Intercept table of the design, row by row.

use serde_json::json;
use undolog_core::{Reason, state::FailedEffect};
use undolog_store::{intercept::InterceptReply, sessions::RollbackScope};

use crate::bench::{Bench, awaiting, executed, refused, replayed};

#[tokio::test]
async fn a_new_compensable_call_is_on_the_stack_before_it_runs() {
    let bench = Bench::new().await;
    let effect = bench.grant(1, "pay").await;
    assert_eq!(bench.effect_state(effect).await, "executing");
    let entry = bench
        .text("SELECT state || ' ' || stack_position FROM undolog_undo_stack WHERE session_id = $1")
        .await;
    assert_eq!(entry, "pending 1");
    let kinds = bench
        .text(
            "SELECT string_agg(kind, ' ' ORDER BY seq) FROM undolog_effect_events \
             WHERE session_id = $1",
        )
        .await;
    assert_eq!(kinds, "session_begun intercepted granted undo_registered");
    bench.check().await;
}

#[tokio::test]
async fn committed_is_replayed_with_its_result_and_keeps_its_state() {
    let bench = Bench::new().await;
    let effect = bench.grant(1, "pay").await;
    bench.commit(effect, &json!({"id": "ch_1"})).await.expect("commit");
    for _ in 0..3 {
        assert_eq!(replayed(&bench.ask(1, "pay").await.expect("replay")), json!({"id": "ch_1"}));
    }
    assert_eq!(bench.effect_state(effect).await, "committed");
    let count =
        bench.text("SELECT replay_count::text FROM undolog_effect_log WHERE session_id = $1").await;
    assert_eq!(count, "3");
    bench.complete().await.expect("complete");
    assert_eq!(replayed(&bench.ask(1, "pay").await.expect("replay")), json!({"id": "ch_1"}));
    bench.check().await;
}

#[tokio::test]
async fn a_live_grant_is_answered_again_only_to_its_own_token() {
    let bench = Bench::new().await;
    let with = |token: &str| {
        let mut input = bench.input(1, "pay", &json!({}));
        input.grant_token = Some(token.into());
        input
    };
    let first = bench.send(with("t1")).await.expect("grant");
    assert_eq!(bench.send(with("t1")).await.expect("the same Execute"), first);
    refused(bench.send(with("t2")).await, Reason::InProgress);
    refused(bench.send(with("")).await, Reason::InProgress);
    assert_eq!(bench.count("undolog_effect_log").await, 1);
    bench.check().await;
}

#[tokio::test]
async fn without_a_token_nobody_gets_the_same_grant_twice() {
    let bench = Bench::new().await;
    bench.grant(1, "pay").await;
    refused(bench.ask(1, "pay").await, Reason::InProgress);
}

#[tokio::test]
async fn an_irreversible_call_waits_and_is_granted_once() {
    let bench = Bench::new().await;
    let (effect, approval) = awaiting(&bench.ask(1, "wipe").await.expect("asked"));
    assert_eq!(awaiting(&bench.ask(1, "wipe").await.expect("asked")), (effect, approval));
    assert_eq!(bench.session_state().await, "awaiting_approval");
    bench.approve(approval, None).await.expect("approve");
    assert_eq!(bench.session_state().await, "active");
    assert_eq!(bench.grant(1, "wipe").await, effect);
    assert_eq!(bench.effect_state(effect).await, "approved", "there is no executing state");
    refused(bench.ask(1, "wipe").await, Reason::InProgress);
    bench.commit(effect, &json!("gone")).await.expect("commit");
    assert_eq!(replayed(&bench.ask(1, "wipe").await.expect("replay")), json!("gone"));
    bench.check().await;
}

#[tokio::test]
async fn a_failed_call_runs_again_only_when_nothing_happened() {
    let bench = Bench::new().await;
    bench.continue_on_failure().await;
    let effect = bench.grant(1, "pay").await;
    bench.fail(effect, FailedEffect::NotApplied).await.expect("fail");
    let reply = bench.ask(1, "pay").await.expect("a new attempt");
    assert_eq!(executed(&reply), effect, "one row per effect");
    assert!(matches!(reply, InterceptReply::Execute { attempt: 2, .. }), "{reply:?}");
    let entries = bench
        .text(
            "SELECT string_agg(state || stack_position || '/' || attempt, ' ' \
             ORDER BY stack_position) FROM undolog_undo_stack WHERE session_id = $1",
        )
        .await;
    assert_eq!(entries, "skipped1/1 pending2/2", "the new attempt has an entry on top");
    bench.fail(effect, FailedEffect::MaybeApplied).await.expect("fail");
    refused(bench.ask(1, "pay").await, Reason::OutcomeUnknown);
    bench.check().await;
}

#[tokio::test]
async fn an_unknown_call_runs_again_only_when_it_is_idempotent() {
    let bench = Bench::new().await;
    let effect = bench.grant(1, "pay").await;
    bench.expire(effect).await;
    refused(bench.ask(1, "pay").await, Reason::OutcomeUnknown);
    assert_eq!(bench.effect_state(effect).await, "unknown", "recorded although refused");
    refused(bench.ask(1, "pay").await, Reason::OutcomeUnknown);

    let effect = bench.grant(2, "put").await;
    bench.expire(effect).await;
    let reply = bench.ask(2, "put").await.expect("a new attempt");
    assert!(matches!(reply, InterceptReply::Execute { attempt: 2, .. }), "{reply:?}");
    let entries = bench
        .text(
            "SELECT string_agg(stack_position || '/' || attempt, ' ' ORDER BY stack_position) \
             FROM undolog_undo_stack WHERE session_id = $1",
        )
        .await;
    assert_eq!(entries, "1/1 2/2", "an idempotent call keeps its entry");
    bench.check().await;
}

#[tokio::test]
async fn a_lease_is_not_over_while_our_service_is_away() {
    let bench = Bench::new().await;
    let effect = bench.grant(1, "pay").await;
    bench.expire(effect).await;
    sqlx::query("UPDATE undolog_service SET last_tick_at = now() - interval '20 seconds'")
        .execute(bench.db.pool())
        .await
        .expect("an old tick");
    refused(bench.ask(1, "pay").await, Reason::InProgress);
    sqlx::query("UPDATE undolog_service SET last_tick_at = now(), resumed_at = now()")
        .execute(bench.db.pool())
        .await
        .expect("back again");
    refused(bench.ask(1, "pay").await, Reason::InProgress);
    bench.check().await;
}

#[tokio::test]
async fn a_rejected_call_never_runs() {
    let bench = Bench::new().await;
    let (effect, approval) = awaiting(&bench.ask(1, "wipe").await.expect("asked"));
    bench.reject(approval).await.expect("reject");
    assert_eq!(bench.session_state().await, "halted");
    refused(bench.ask(1, "wipe").await, Reason::ApprovalRejected);
    refused(bench.approve(approval, None).await, Reason::ApprovalAlreadyResolved);
    refused(bench.commit(effect, &json!(1)).await, Reason::NotGranted);
    refused(bench.ask(2, "pay").await, Reason::SessionHalted);
    bench.check().await;
}

#[tokio::test]
async fn a_step_belongs_to_one_call() {
    let bench = Bench::new().await;
    bench.continue_on_failure().await;
    let effect = bench.grant(1, "pay").await;
    let other = bench.input(1, "pay", &json!({"amount": 2}));
    refused(bench.send(other.clone()).await, Reason::StepConflict);
    bench.fail(effect, FailedEffect::NotApplied).await.expect("fail");
    executed(&bench.send(other).await.expect("the step is free again"));
    refused(bench.ask(1, "pay").await, Reason::StepConflict);
    bench.org.set(bench.db.pool(), "on_step_conflict", "allow").await;
    executed(&bench.ask(1, "pay").await.expect("the policy allows it"));
    bench.check().await;
}

#[tokio::test]
async fn while_an_approval_is_pending_only_irreversible_calls_queue() {
    let bench = Bench::new().await;
    bench.ask(1, "wipe").await.expect("asked");
    refused(bench.ask(2, "pay").await, Reason::SessionAwaitingApproval);
    awaiting(&bench.ask(3, "wipe").await.expect("another one queues"));
    let pending =
        bench.text("SELECT approvals_pending::text FROM undolog_sessions WHERE session_id = $1");
    assert_eq!(pending.await, "2");
    bench.check().await;
}

#[tokio::test]
async fn an_ended_session_takes_no_call() {
    let bench = Bench::new().await;
    let effect = bench.grant(1, "pay").await;
    bench.commit(effect, &json!(1)).await.expect("commit");
    bench.complete().await.expect("complete");
    refused(bench.ask(2, "pay").await, Reason::SessionCompleted);
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    refused(bench.ask(2, "pay").await, Reason::SessionCompensating);
    refused(bench.ask(1, "pay").await, Reason::SessionCompensating);
    bench.check().await;
}

#[tokio::test]
async fn a_safe_call_leaves_no_row() {
    let bench = Bench::new().await;
    let reply = bench.ask(1, "look").await.expect("free to run");
    assert!(matches!(reply, InterceptReply::Execute { effect_id: None, .. }), "{reply:?}");
    for table in ["undolog_sessions", "undolog_effect_log", "undolog_effect_events"] {
        assert_eq!(bench.count(table).await, 0, "{table}");
    }
}

#[tokio::test]
async fn an_unknown_tool_is_refused_or_irreversible_but_never_safe() {
    let bench = Bench::new().await;
    refused(bench.ask(1, "typo").await, Reason::ToolNotRegistered);
    assert_eq!(bench.count("undolog_sessions").await, 0);
    let mut input = bench.input(1, "pay", &json!({}));
    input.tool_version = "9.9.9".into();
    refused(bench.send(input).await, Reason::ToolNotRegistered);
    bench.org.set(bench.db.pool(), "on_unregistered_tool", "irreversible").await;
    awaiting(&bench.ask(1, "typo").await.expect("a human decides"));
    bench.check().await;
}

#[tokio::test]
async fn a_grant_of_a_call_that_a_proxy_makes_ends_soon_after_the_proxy() {
    let bench = Bench::new().await;
    bench
        .tool("ship", undolog_core::Tier::Compensable, |tool| {
            tool.compensation_ref = "undo_pay".into();
            tool.upstream = br#"{"method":"POST","endpoint":"https://ship.example/do"}"#.to_vec();
        })
        .await;
    for (step, token, lease_ms) in [(1, Some("proxy-1"), "60000"), (2, None, "900000")] {
        let mut input = bench.input(step, "ship", &json!({}));
        input.executor_token = token.map(Into::into);
        executed(&bench.send(input).await.expect("a grant"));
        let lease = "SELECT lease_ms::text FROM undolog_effect_log WHERE session_id = $1 \
                     ORDER BY step_index DESC LIMIT 1";
        assert_eq!(bench.text(lease).await, lease_ms, "with {token:?}");
    }
}
