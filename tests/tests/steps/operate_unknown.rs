//! Unknown outcomes: listed, and settled by a human in each way that is true.

use serde_json::json;
use undolog_core::{
    Reason,
    role::Role,
    state::{EffectState, FailedEffect, SessionState},
};
use undolog_store::{
    operate::{Resolution, ResolveEffect, UnknownFilter, list_unknown},
    read::Paging,
    sessions::RollbackScope,
};
use undolog_tests::check::settled_check;
use uuid::Uuid;

use crate::{
    bench::{Bench, executed, refused, replayed},
    operate_kit::{committed, lost_payment, lost_wipe},
    walker::{Walker, entries, pay},
};

#[tokio::test]
async fn they_are_listed_with_what_is_known() {
    let bench = Bench::new().await;
    let payment = lost_payment(&bench, 1).await;
    let wipe = lost_wipe(&bench, 2).await;
    bench
        .run_sql(
            "UPDATE undolog_tool_registry SET probe = '{}' WHERE tool_name = 'wipe'; \
             UPDATE undolog_effect_log SET probe_count = 2, probe_answer = 'cannot_tell', \
             probe_error = 'timeout' WHERE tool_name = 'wipe'",
        )
        .await;
    let list = |filter: UnknownFilter, paging: Paging| {
        let (store, caller) = (bench.store.clone(), bench.operator());
        async move { list_unknown(&store, &caller, &filter, &paging).await.expect("a list") }
    };
    let all = list(UnknownFilter::default(), Paging::default()).await;
    let ids: Vec<Uuid> = all.rows.iter().map(|row| row.effect.effect_id).collect();
    assert_eq!(ids, [payment, wipe], "the longest unknown first");
    let row = &all.rows[1];
    assert_eq!(row.session_state, "active");
    assert!(row.granted_at.is_some() && row.has_probe && !all.rows[0].has_probe);
    assert_eq!((row.probe_answer.as_deref(), row.probe_count), (Some("cannot_tell"), 2));
    assert_eq!(row.effect.args, br#"{"step":2}"#);
    let one = Paging { size: 1, token: String::new() };
    let first = list(UnknownFilter::default(), one).await;
    let next = Paging { size: 1, token: first.next_token };
    let second = list(UnknownFilter::default(), next).await;
    assert_eq!(second.rows[0].effect.effect_id, wipe);
    assert!(second.next_token.is_empty());
    let pay = UnknownFilter { tool_name: "pay".into(), ..Default::default() };
    assert_eq!(list(pay, Paging::default()).await.rows.len(), 1);
    let other = UnknownFilter { session_id: Some(Uuid::new_v4()), ..Default::default() };
    assert!(list(other, Paging::default()).await.rows.is_empty());
}

#[tokio::test]
async fn failures_that_may_have_taken_effect_are_listed_beside_them() {
    let bench = Bench::new().await;
    let unknown = lost_payment(&bench, 1).await;
    let maybe = bench.grant(2, "pay").await;
    bench.fail(maybe, FailedEffect::MaybeApplied).await.expect("fail");
    let not = bench.grant(3, "pay").await;
    bench.fail(not, FailedEffect::NotApplied).await.expect("fail");
    let list = |filter: UnknownFilter| {
        let (store, caller) = (bench.store.clone(), bench.operator());
        async move {
            let page = list_unknown(&store, &caller, &filter, &Paging::default()).await;
            page.expect("a list").rows
        }
    };
    let all = list(UnknownFilter::default()).await;
    let told = |row: &undolog_store::operate::UnknownEffect| {
        (row.effect.effect_id, row.effect.state.clone(), row.effect.outcome.clone())
    };
    let maybe_applied = Some("maybe_applied".to_owned());
    let expected =
        [(unknown, "unknown".to_owned(), None), (maybe, "failed".to_owned(), maybe_applied)];
    assert_eq!(all.iter().map(told).collect::<Vec<_>>(), expected);
    let queue = undolog_store::operate::queue_status(&bench.store, &bench.operator(), "").await;
    assert_eq!(queue.expect("the queue").unknown, 2, "the number is that of the list");
    let only = |effect_id| UnknownFilter { effect_id: Some(effect_id), ..Default::default() };
    assert_eq!(list(only(maybe)).await.len(), 1);
    assert!(list(only(not)).await.is_empty());
    // What its session's operator has settled has left the list, and is still found.
    bench.run_sql("UPDATE undolog_sessions SET settled_at = now()").await;
    assert_eq!(list(UnknownFilter::default()).await.len(), 1);
    assert_eq!(list(only(maybe)).await.len(), 1);
    bench.run_sql("UPDATE undolog_sessions SET settled_at = NULL").await;
    bench.resolve_effect(maybe, Resolution::NotApplied).await.expect("it did not happen");
    let left = list(UnknownFilter::default()).await;
    assert_eq!(left.iter().map(|row| row.effect.effect_id).collect::<Vec<_>>(), [unknown]);
    bench.check().await;
}

#[tokio::test]
async fn committed_is_the_same_as_the_callers_own_commit() {
    let bench = Bench::new().await;
    let effect = lost_payment(&bench, 1).await;
    let resolved =
        bench.resolve_effect(effect, committed(&json!({"id": "p-1"}))).await.expect("known");
    assert_eq!(resolved.effect_state, EffectState::Committed);
    assert_eq!(replayed(&bench.ask(1, "pay").await.expect("a replay")), json!({"id": "p-1"}));
    let said = bench
        .text(
            "SELECT e.operator_said || ' ' || v.actor FROM undolog_effect_log e \
             JOIN undolog_effect_events v ON v.subject_id = e.effect_id \
             WHERE e.session_id = $1 AND v.kind = 'resolved_committed'",
        )
        .await;
    assert_eq!(said, "committed olga");
    bench.commit(effect, &json!({"id": "p-1"})).await.expect("the same, from the caller");
    refused(bench.commit(effect, &json!({"id": "p-2"})).await, Reason::ResultConflict);
    bench.check().await;
}

#[tokio::test]
async fn committed_brings_a_halted_rollback_the_result_that_it_lacked() {
    let bench = Bench::new().await;
    bench.compensation("undo_pay", json!({"arg_mapping": {"id": "{result.id}"}})).await;
    let effect = lost_payment(&bench, 1).await;
    Walker::start(&bench).await.succeed().await;
    assert_eq!(bench.session_state().await, "halted");
    let resolved =
        bench.resolve_effect(effect, committed(&json!({"id": "p-1"}))).await.expect("known");
    assert_eq!(resolved.session_state, SessionState::Compensating);
    assert_eq!(bench.settled_as().await, "committed by olga: asked the bank");
    let made = Walker::claim(&bench).await.succeed().await;
    assert_eq!(made, [(effect, r#"{"id":"p-1"}"#.to_owned())]);
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
    settled_check(bench.db.pool(), bench.session).await;
}

#[tokio::test]
async fn a_committed_irreversible_call_becomes_residue() {
    let bench = Bench::new().await;
    let effect = lost_wipe(&bench, 1).await;
    Walker::start(&bench).await.succeed().await;
    refused(bench.resolve_effect(effect, Resolution::Undone).await, Reason::InvalidArgument);
    bench.resolve_effect(effect, committed(&json!(null))).await.expect("known");
    assert_eq!(bench.settled_as().await, "committed by olga: asked the bank");
    Walker::claim(&bench).await.succeed().await;
    assert_eq!(bench.session_state().await, "compensated");
    let residue =
        bench.text("SELECT residue_count::text FROM undolog_sessions WHERE session_id = $1").await;
    assert_eq!(residue, "1");
    bench.check().await;
    settled_check(bench.db.pool(), bench.session).await;
}

#[tokio::test]
async fn not_applied_lets_the_same_call_run_again() {
    let bench = Bench::new().await;
    let effect = lost_payment(&bench, 1).await;
    refused(bench.ask(1, "pay").await, Reason::OutcomeUnknown);
    let resolved = bench.resolve_effect(effect, Resolution::NotApplied).await.expect("known");
    assert_eq!(resolved.effect_state, EffectState::Failed);
    assert_eq!(resolved.session_state, SessionState::Active);
    assert_eq!(entries(&bench).await, ["skipped:not_applied"]);
    assert_eq!(executed(&bench.ask(1, "pay").await.expect("a grant")), effect);
    bench.commit(effect, &json!(1)).await.expect("the new attempt is nobody's contradiction");
    bench.check().await;
}

#[tokio::test]
async fn not_applied_ends_the_wait_of_a_rollback() {
    let bench = Bench::new().await;
    bench.continue_on_failure().await;
    pay(&bench, 1).await;
    let effect = bench.grant(2, "pay").await;
    bench.fail(effect, FailedEffect::Unknown).await.expect("unknown");
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    let due = "SELECT (due_at <= clock_timestamp())::text FROM undolog_rollbacks \
        WHERE session_id = $1";
    assert_eq!(bench.text(due).await, "false", "it waits for the call to settle");
    bench.resolve_effect(effect, Resolution::NotApplied).await.expect("known");
    assert_eq!(bench.text(due).await, "true");
    assert_eq!(Walker::claim(&bench).await.succeed().await.len(), 1, "only the other payment");
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
    settled_check(bench.db.pool(), bench.session).await;
}

#[tokio::test]
async fn undone_by_hand_is_never_undone_again() {
    // In an active session, where the entry still waits on the stack.
    let bench = Bench::new().await;
    let effect = lost_payment(&bench, 1).await;
    let resolved = bench.resolve_effect(effect, Resolution::Undone).await.expect("undone");
    assert_eq!(resolved.effect_state, EffectState::Compensated);
    refused(bench.ask(1, "pay").await, Reason::AlreadyUndone);
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    assert_eq!(bench.session_state().await, "compensated", "nothing is left to undo");
    bench.check().await;
    settled_check(bench.db.pool(), bench.session).await;

    // After a failure that the walk could not undo and skipped.
    let bench = Bench::new().await;
    bench.continue_on_failure().await;
    bench.compensation("undo_pay", json!({"arg_mapping": {"id": "{result.id}"}})).await;
    let effect = bench.grant(1, "pay").await;
    bench.fail(effect, FailedEffect::MaybeApplied).await.expect("fail");
    Walker::start(&bench).await.succeed().await;
    assert_eq!(entries(&bench).await, ["skipped:failed_without_result"]);
    bench.resolve_effect(effect, Resolution::Undone).await.expect("undone");
    assert_eq!(bench.effect_state(effect).await, "compensated");
    bench.check().await;
}

#[tokio::test]
async fn only_what_is_unknown_is_resolved_and_only_once() {
    let bench = std::sync::Arc::new(Bench::new().await);
    let known = bench.grant(1, "pay").await;
    refused(bench.resolve_effect(known, Resolution::NotApplied).await, Reason::InProgress);
    bench.commit(known, &json!(1)).await.expect("commit");
    refused(bench.resolve_effect(known, Resolution::NotApplied).await, Reason::ResultConflict);
    let effect = lost_payment(&bench, 2).await;
    let mut tasks = Vec::new();
    for n in 0..9 {
        let bench = bench.clone();
        let way = match n % 3 {
            0 => committed(&json!({"n": n})),
            1 => Resolution::NotApplied,
            _ => Resolution::Undone,
        };
        tasks.push(tokio::spawn(async move { bench.resolve_effect(effect, way).await }));
    }
    let mut winners = 0;
    for task in tasks {
        match task.await.expect("no panic") {
            Ok(_) => winners += 1,
            Err(undolog_store::StepError::Refused(refusal)) => {
                let told = [Reason::ResultConflict, Reason::AlreadyUndone];
                assert!(told.contains(&refusal.reason), "{refusal}");
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(winners, 1);
    bench.check().await;
}

#[tokio::test]
async fn only_an_operator_says_so_and_says_why() {
    let bench = Bench::new().await;
    let effect_id = lost_payment(&bench, 1).await;
    let step = |caller, note: &str| ResolveEffect {
        caller,
        session_id: bench.session,
        effect_id,
        resolve: Resolution::NotApplied,
        note: note.into(),
    };
    for role in [Role::Agent, Role::Approver, Role::Executor] {
        let caller = bench.caller(role, crate::bench::AGENT);
        refused(bench.store.run(step(caller, "so")).await, Reason::PermissionDenied);
    }
    refused(bench.store.run(step(bench.operator(), "")).await, Reason::InvalidArgument);
    let mut stranger = bench.operator();
    stranger.org_id = undolog_tests::world::Org::create(bench.db.pool(), "evil").await.id;
    refused(bench.store.run(step(stranger, "so")).await, Reason::SessionNotFound);
    bench.check().await;
}
