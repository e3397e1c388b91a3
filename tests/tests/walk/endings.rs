//! The order of the walk and the ways in which it ends.

use serde_json::json;
use undolog_core::retry::CallOutcome;
use undolog_store::{sessions::RollbackScope, walk::Next};
use uuid::Uuid;

use crate::{
    bench::Bench,
    walker::{Walker, body, entries, letters, outcomes, pay, report_of},
};

#[tokio::test]
async fn the_walk_undoes_from_the_top_with_one_key_per_entry() {
    let bench = Bench::new().await;
    let effects = pay(&bench, 3).await;
    let walker = Walker::start(&bench).await;
    let mut report = None;
    let mut made: Vec<Uuid> = Vec::new();
    while let Next::Call(call) = walker.step(report.take()).await {
        let key = call.call.shown_headers().into_iter().find(|(name, _)| name == "Idempotency-Key");
        assert_eq!(key.map(|(_, value)| value), Some(call.undo_id.to_string()));
        assert_eq!(bench.effect_state(call.effect_id).await, "compensating");
        made.push(call.effect_id);
        report = Some(report_of(&call, CallOutcome::Done));
    }
    assert_eq!(made, effects.into_iter().rev().collect::<Vec<_>>());
    assert_eq!(bench.session_state().await, "compensated");
    assert_eq!(entries(&bench).await, ["compensated", "compensated", "compensated"]);
    let (response, known): (Vec<u8>, bool) = sqlx::query_as(
        "SELECT response, result_known FROM undolog_undo_attempts WHERE session_id = $1 LIMIT 1",
    )
    .bind(bench.session)
    .fetch_one(bench.db.pool())
    .await
    .expect("an attempt");
    assert_eq!((response.as_slice(), known), (b"raw\0\xff".as_slice(), true));
    bench.check().await;
}

#[tokio::test]
async fn arguments_come_from_the_call_and_its_result() {
    let bench = Bench::new().await;
    let body_of = json!({"payment": "{result.id}", "note": "step {args.step}", "n": "{result.n}"});
    bench.compensation("undo_pay", json!({"arg_mapping": body_of})).await;
    let effect = bench.grant(1, "pay").await;
    // A number that no double holds, and text that looks like a placeholder.
    let result = json!({"id": "{args.step}", "n": 12_345_678_901_234_567_890_u64});
    bench.commit(effect, &result).await.expect("commit");
    let walker = Walker::start(&bench).await;
    let call = Walker::call(walker.step(None).await);
    assert_eq!(
        body(&call.call),
        r#"{"n":12345678901234567890,"note":"step 1","payment":"{args.step}"}"#
    );
}

#[tokio::test]
async fn a_permanent_failure_stops_the_walk_with_one_dead_letter() {
    let bench = Bench::new().await;
    let effects = pay(&bench, 2).await;
    let walker = Walker::start(&bench).await;
    let call = Walker::call(walker.step(None).await);
    let next = walker.step(Some(report_of(&call, CallOutcome::Permanent))).await;
    assert!(matches!(next, Next::Done), "{next:?}");
    assert_eq!(bench.session_state().await, "halted");
    assert_eq!(bench.effect_state(effects[1]).await, "compensation_failed");
    assert_eq!(bench.effect_state(effects[0]).await, "committed");
    assert_eq!(entries(&bench).await, ["pending", "failed"]);
    assert_eq!(letters(&bench).await, [("PERMANENT".to_owned(), true)]);
    let (error, raw): (String, Vec<u8>) = sqlx::query_as(
        "SELECT last_error, last_error_raw FROM undolog_undo_stack WHERE undo_id = $1",
    )
    .bind(call.undo_id)
    .fetch_one(bench.db.pool())
    .await
    .expect("the entry");
    assert_eq!((error.as_str(), raw.as_slice()), ("it \u{2400} broke", b"it \0 broke".as_slice()));
    bench.check().await;
}

#[tokio::test]
async fn by_policy_the_walk_goes_on_and_halts_at_the_end() {
    let bench = Bench::new().await;
    bench.org.set(bench.db.pool(), "on_dead_letter", "continue").await;
    pay(&bench, 3).await;
    let walker = Walker::start(&bench).await;
    let call = Walker::call(walker.step(None).await);
    let call = Walker::call(walker.step(Some(report_of(&call, CallOutcome::Permanent))).await);
    let call = Walker::call(walker.step(Some(report_of(&call, CallOutcome::Done))).await);
    let next = walker.step(Some(report_of(&call, CallOutcome::Done))).await;
    assert!(matches!(next, Next::Done), "{next:?}");
    assert_eq!(entries(&bench).await, ["compensated", "compensated", "failed"]);
    assert_eq!(bench.session_state().await, "halted", "never called compensated");
    bench.check().await;
}

#[tokio::test]
async fn a_partial_rollback_gives_the_session_back() {
    let bench = Bench::new().await;
    let kept = pay(&bench, 1).await;
    let point = bench.savepoint().await;
    let undone = bench.grant(2, "pay").await;
    bench.commit(undone, &json!(2)).await.expect("commit");
    bench
        .rollback(RollbackScope::ToSavepoint(u32::try_from(point.position).expect("a position")))
        .await
        .expect("rollback");
    assert_eq!(bench.session_state().await, "compensating");
    let walker = Walker::claim(&bench).await;
    assert_eq!(walker.succeed().await.len(), 1);
    assert_eq!(bench.session_state().await, "active");
    assert_eq!(bench.effect_state(undone).await, "compensated");
    assert_eq!(bench.effect_state(kept[0]).await, "committed");
    assert_eq!(outcomes(&bench).await, ["succeeded"]);
    bench.check().await;
}

#[tokio::test]
async fn an_operators_success_on_record_needs_no_call() {
    let bench = Bench::new().await;
    pay(&bench, 1).await;
    let first = Walker::start(&bench).await;
    let call = Walker::call(first.step(None).await);
    // The worker dies after the call was answered and written, and before anything was settled.
    crate::walker::run(
        bench.db.pool(),
        "UPDATE undolog_undo_attempts SET outcome = 'succeeded', finished_at = now()",
    )
    .await;
    crate::walker::lease_over(&bench).await;
    let second = Walker::claim_as(&bench, "worker-2").await;
    let next = second.step(None).await;
    assert!(matches!(next, Next::Done), "not called again: {next:?}");
    assert_eq!(bench.effect_state(call.effect_id).await, "compensated");
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
}
