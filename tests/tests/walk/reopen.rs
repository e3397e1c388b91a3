//! What counts as undone and is not: the status alone is pointed out, and an operator has it undone
//! once more.

use serde_json::json;
use undolog_core::{
    reason::Reason,
    retry::CallOutcome,
    role::Role,
    state::{EffectState, SessionState},
};
use undolog_store::{
    StepError,
    operate::{EffectResolved, Resolution, ResolveEffect},
    sessions::RollbackScope,
    walk::{Next, Report},
};
use uuid::Uuid;

use crate::{
    bench::{Bench, refused},
    walker::{Walker, body, entries, letters, pay, report_of, time_passes},
};

async fn reopen(bench: &Bench, role: Role, effect_id: Uuid) -> Result<EffectResolved, StepError> {
    let step = ResolveEffect {
        caller: bench.caller(role, "operator-1"),
        session_id: bench.session,
        effect_id,
        resolve: Resolution::NotUndone,
        note: "it is still there".into(),
    };
    bench.store.run(step).await
}

#[tokio::test]
async fn what_was_not_undone_is_undone_once_more_under_a_new_key() {
    let bench = Bench::new().await;
    let effects = pay(&bench, 2).await;
    refused(reopen(&bench, Role::Operator, effects[0]).await, Reason::InvalidArgument);
    let walker = Walker::start(&bench).await;
    let before = walker.succeed().await;
    assert_eq!(bench.session_state().await, "compensated");
    refused(reopen(&bench, Role::Agent, effects[0]).await, Reason::PermissionDenied);
    let reopened = reopen(&bench, Role::Operator, effects[0]).await.expect("reopened");
    let expected = EffectResolved {
        effect_state: EffectState::Compensating,
        session_state: SessionState::Compensating,
    };
    assert_eq!(reopened, expected);
    refused(reopen(&bench, Role::Operator, effects[0]).await, Reason::InvalidArgument);
    time_passes(&bench).await;
    let walker = Walker::claim(&bench).await;
    let call = Walker::call(walker.step(None).await);
    assert_eq!((call.effect_id, body(&call.call)), before[1].clone());
    let keys = "SELECT count(DISTINCT undo_id)::text FROM undolog_undo_attempts \
        WHERE session_id = $1";
    assert_eq!(bench.text(keys).await, "3", "a key of its own");
    let next = walker.step(Some(report_of(&call, CallOutcome::Done))).await;
    assert!(matches!(next, Next::Done), "nothing below it is touched: {next:?}");
    assert_eq!(entries(&bench).await, ["compensated"; 3]);
    assert_eq!(bench.effect_state(effects[0]).await, "compensated");
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
}

#[tokio::test]
async fn a_second_undo_that_fails_is_a_dead_letter() {
    let bench = Bench::new().await;
    let effects = pay(&bench, 1).await;
    Walker::start(&bench).await.succeed().await;
    reopen(&bench, Role::Operator, effects[0]).await.expect("reopened");
    time_passes(&bench).await;
    let walker = Walker::claim(&bench).await;
    let call = Walker::call(walker.step(None).await);
    walker.step(Some(report_of(&call, CallOutcome::Permanent))).await;
    assert_eq!(letters(&bench).await, [("PERMANENT".to_owned(), true)]);
    assert_eq!(bench.effect_state(effects[0]).await, "compensation_failed");
    assert_eq!(bench.session_state().await, "halted");
    bench.check().await;
}

#[tokio::test]
async fn a_session_that_went_on_goes_on_afterwards() {
    let bench = Bench::new().await;
    let kept = pay(&bench, 1).await;
    let taken = bench.savepoint().await;
    let effect = bench.grant(2, "pay").await;
    bench.commit(effect, &json!({"id": "p-2"})).await.expect("commit");
    let position = u32::try_from(taken.position).expect("a position");
    bench.rollback(RollbackScope::ToSavepoint(position)).await.expect("rollback");
    Walker::claim(&bench).await.succeed().await;
    assert_eq!(bench.session_state().await, "active");
    reopen(&bench, Role::Operator, effect).await.expect("reopened");
    time_passes(&bench).await;
    let made = Walker::claim(&bench).await.succeed().await;
    assert_eq!(made.iter().map(|(effect, _)| *effect).collect::<Vec<_>>(), [effect]);
    assert_eq!(bench.session_state().await, "active");
    assert_eq!(bench.effect_state(kept[0]).await, "committed");
    assert_eq!(bench.complete().await.expect("completed"), SessionState::Completed);
    bench.check().await;
}

#[tokio::test]
async fn a_compensation_that_was_only_ever_gone_is_pointed_out() {
    let bench = Bench::new().await;
    pay(&bench, 3).await;
    let walker = Walker::start(&bench).await;
    let mut next = walker.step(None).await;
    for status in [404, 200, 404] {
        let call = Walker::call(next);
        let report = Report { status: Some(status), ..report_of(&call, CallOutcome::Done) };
        next = walker.step(Some(report)).await;
    }
    let notes: Vec<bool> = sqlx::query_scalar(
        "SELECT last_error LIKE 'HTTP 404 counts as done%' IS TRUE FROM undolog_undo_stack \
         WHERE session_id = $1 ORDER BY stack_position",
    )
    .bind(bench.session)
    .fetch_all(bench.db.pool())
    .await
    .expect("the entries");
    assert_eq!(notes, [false, false, true], "only before anything else was answered");
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
}
