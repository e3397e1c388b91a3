//! One dead letter: shown, put back to work, skipped, resolved by hand; and who hears what.

use serde_json::json;
use undolog_core::{Reason, retry::CallOutcome, role::Role, state::SessionState};
use undolog_store::{
    operate::{self, Resolution, RetryDeadLetter, SkipDeadLetter},
    sessions::RollbackScope,
    walk::{Next, Place},
};
use undolog_tests::check::settled_check;
use uuid::Uuid;

use crate::{
    bench::{Bench, refused},
    operate_kit::{commit_late, halted, lost_payment, lost_wipe},
    walker::{Walker, entries, lease_over, outcomes, pay, report_of, time_passes},
};

#[tokio::test]
async fn it_is_shown_with_its_calls_and_what_would_be_sent_now() {
    let bench = Bench::new().await;
    let secret = json!({
        "headers": {"Authorization": "Bearer {secret:TOKEN}"},
        "endpoint": "https://undo.example/undo/{result.id}",
        "arg_mapping": {"payment": "{result.id}"},
    });
    bench.compensation("undo_pay", secret).await;
    let effects = halted(&bench, 2).await;
    let items = bench.open_letters().await;
    assert_eq!(items.len(), 1);
    let item = &items[0];
    assert_eq!(item.dead_letter.reason, "PERMANENT");
    assert_eq!((item.tool_name.as_str(), item.step_index, item.position), ("pay", 2, 2));
    assert_eq!(item.effect_state, "compensation_failed");
    assert_eq!(item.session_state, "halted");
    assert_eq!(item.compensation_fn, "undo_pay");
    assert_eq!((item.last_error.as_deref(), item.attempts), (Some("it \0 broke"), 1));

    let id = item.dead_letter.dead_letter_id;
    let detail = operate::get_dead_letter(&bench.store, &bench.operator(), id).await.expect("it");
    assert_eq!(detail.effect.effect_id, effects[1]);
    assert_eq!(detail.effect.result, br#"{"id":"p-2"}"#);
    assert_eq!(detail.entry.expect("an entry").state, "failed");
    assert_eq!(detail.attempts.len(), 1);
    let attempt = &detail.attempts[0];
    assert_eq!(attempt.outcome.as_deref(), Some("permanent"));
    assert_eq!((attempt.status, attempt.error.as_deref()), (Some(500), Some("it \0 broke")));
    assert_eq!(attempt.response, b"raw\0\xff");
    let next = detail.next_call.expect("a call").preview.expect("a preview");
    assert_eq!((next.action, next.method.as_str()), ("call", "POST"));
    assert_eq!(next.url, "https://undo.example/undo/p-2");
    assert_eq!(next.body, br#"{"payment":"p-2"}"#);
    let unknown = Uuid::now_v7();
    let none = operate::get_dead_letter(&bench.store, &bench.operator(), unknown).await;
    refused(none, Reason::DeadLetterNotFound);
}

#[tokio::test]
async fn a_retry_is_a_new_round_under_the_same_key_and_the_walk_goes_on() {
    let bench = Bench::new().await;
    let effects = halted(&bench, 3).await;
    let letter = bench.the_letter().await;
    let state = bench.retry_letter(letter).await.expect("retry");
    assert_eq!(state, SessionState::Compensating);
    assert_eq!(bench.effect_state(effects[2]).await, "compensating");
    assert_eq!(bench.settled_as().await, "retried by olga: mended");
    assert_eq!(entries(&bench).await, ["pending"; 3]);
    bench.check().await;
    // A whole new round: the entry's one call in it may fail and is tried again.
    let walker = Walker::claim(&bench).await;
    let call = Walker::call(walker.step(None).await);
    assert_eq!((call.effect_id, call.number), (effects[2], 1));
    let next = walker.step(Some(report_of(&call, CallOutcome::Retry))).await;
    assert!(matches!(next, Next::Waiting), "{next:?}");
    time_passes(&bench).await;
    let made = Walker::claim(&bench).await.succeed().await;
    let order: Vec<Uuid> = made.into_iter().map(|(effect, _)| effect).collect();
    assert_eq!(order, [effects[2], effects[1], effects[0]]);
    let keys: i64 = sqlx::query_scalar(
        "SELECT count(DISTINCT undo_id) FROM undolog_undo_attempts WHERE session_id = $1",
    )
    .bind(bench.session)
    .fetch_one(bench.db.pool())
    .await
    .expect("keys");
    assert_eq!(keys, 3, "the key of the first call is the key of the retry");
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
    settled_check(bench.db.pool(), bench.session).await;
}

#[tokio::test]
async fn of_many_operators_one_wins_and_the_others_are_told() {
    let bench = std::sync::Arc::new(Bench::new().await);
    halted(&bench, 2).await;
    let letter = bench.the_letter().await;
    let mut tasks = Vec::new();
    for n in 0..12 {
        let bench = bench.clone();
        tasks.push(tokio::spawn(async move {
            match n % 3 {
                0 => bench.retry_letter(letter).await,
                1 => bench.skip_letter(letter).await,
                _ => bench.resolve_letter(letter).await,
            }
        }));
    }
    let mut winners = 0;
    for task in tasks {
        match task.await.expect("no panic") {
            Ok(_) => winners += 1,
            other => refused(other, Reason::DeadLetterClosed),
        }
    }
    assert_eq!(winners, 1);
    bench.check().await;
}

#[tokio::test]
async fn only_operators_settle_dead_letters_and_only_their_own_organisations() {
    let bench = Bench::new().await;
    halted(&bench, 1).await;
    let dead_letter_id = bench.the_letter().await;
    for role in [Role::Agent, Role::Executor, Role::Approver] {
        let caller = bench.caller(role, crate::bench::AGENT);
        let reason = "because".to_owned();
        let step = SkipDeadLetter { caller, dead_letter_id, reason };
        refused(bench.store.run(step).await, Reason::PermissionDenied);
    }
    let stranger = undolog_tests::world::Org::create(bench.db.pool(), "evil").await;
    let mut caller = bench.operator();
    caller.org_id = stranger.id;
    let shown = operate::get_dead_letter(&bench.store, &caller, dead_letter_id).await;
    refused(shown, Reason::DeadLetterNotFound);
    let (args, note) = (None, String::new());
    let step = RetryDeadLetter { caller, dead_letter_id, args, fresh_key: false, note };
    refused(bench.store.run(step).await, Reason::DeadLetterNotFound);
    let blank = SkipDeadLetter { caller: bench.operator(), dead_letter_id, reason: " ".into() };
    refused(bench.store.run(blank).await, Reason::InvalidArgument);
    bench.resolve_letter(dead_letter_id).await.expect("an operator may");
    bench.check().await;
}

#[tokio::test]
async fn edited_arguments_supersede_the_entry_and_are_sent_as_they_are() {
    let bench = Bench::new().await;
    bench.compensation("undo_pay", json!({"arg_mapping": {"payment": "{comp.id}"}})).await;
    let schema = r#"{"type":"object","required":["id"],"properties":{"id":{"type":"string"}}}"#;
    sqlx::query("UPDATE undolog_compensation_registry SET args_schema = $1::jsonb")
        .bind(schema)
        .execute(bench.db.pool())
        .await
        .expect("a schema");
    bench.run_sql("UPDATE undolog_orgs SET registry_epoch = registry_epoch + 1").await;
    let effect = grant_with(&bench, r#"{"id":"{result.id}"}"#).await;
    bench.commit(effect, &json!({"id": 7})).await.expect("commit");
    let walker = Walker::start(&bench).await;
    // A number does not fit the schema.
    let next = walker.step(None).await;
    assert!(matches!(next, Next::Done), "{next:?}");
    let letter = bench.the_letter().await;
    refused(bench.retry_with(letter, Some(r#"{"id":7}"#), false).await, Reason::ArgsInvalid);
    refused(bench.retry_with(letter, Some("{"), false).await, Reason::ArgsInvalid);
    let edited = r#"{"id":"{result.id}","exact":1e400}"#;
    bench.retry_with(letter, Some(edited), false).await.expect("retry");
    assert_eq!(entries(&bench).await, ["skipped:superseded", "pending"]);
    let chained: bool = sqlx::query_scalar(
        "SELECT o.superseded_by = n.undo_id AND n.compensation_args_raw = $2 \
         FROM undolog_undo_stack o JOIN undolog_undo_stack n USING (session_id) \
         WHERE session_id = $1 AND o.state = 'skipped' AND n.state = 'pending'",
    )
    .bind(bench.session)
    .bind(edited.as_bytes())
    .fetch_one(bench.db.pool())
    .await
    .expect("both");
    assert!(chained, "kept exactly, and named by the old entry");
    bench.check().await;
    let made = Walker::claim(&bench).await.succeed().await;
    assert_eq!(made, [(effect, r#"{"payment":"{result.id}"}"#.to_owned())]);
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
    settled_check(bench.db.pool(), bench.session).await;
}

#[tokio::test]
async fn edited_arguments_that_nothing_reads_are_refused() {
    let bench = Bench::new().await;
    bench.compensation("undo_pay", json!({"arg_mapping": {"step": "{args.step}"}})).await;
    halted(&bench, 1).await;
    let letter = bench.the_letter().await;
    refused(bench.retry_with(letter, Some(r#"{"step":99}"#), false).await, Reason::ArgsInvalid);
    assert_eq!(entries(&bench).await, ["failed"]);
    bench.retry_letter(letter).await.expect("as it is");
    bench.check().await;
}

#[tokio::test]
async fn a_fresh_key_is_a_new_entry_on_top() {
    let bench = Bench::new().await;
    let effects = halted(&bench, 2).await;
    bench.retry_with(bench.the_letter().await, None, true).await.expect("retry");
    assert_eq!(entries(&bench).await, ["pending", "skipped:superseded", "pending"]);
    let made = Walker::claim(&bench).await.succeed().await;
    let order: Vec<Uuid> = made.into_iter().map(|(effect, _)| effect).collect();
    assert_eq!(order, [effects[1], effects[0]]);
    assert_eq!(bench.effect_state(effects[1]).await, "compensated");
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
}

#[tokio::test]
async fn a_skip_leaves_the_effect_as_it_is_and_the_walk_goes_on() {
    let bench = Bench::new().await;
    let effects = halted(&bench, 2).await;
    let state = bench.skip_letter(bench.the_letter().await).await.expect("skip");
    assert_eq!(state, SessionState::Compensating, "the lower entry is still to be undone");
    assert_eq!(bench.settled_as().await, "skipped by olga: the customer keeps it");
    assert_eq!(Walker::claim(&bench).await.succeed().await.len(), 1);
    assert_eq!(entries(&bench).await, ["compensated", "skipped:operator"]);
    assert_eq!(bench.effect_state(effects[1]).await, "compensation_failed");
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
    settled_check(bench.db.pool(), bench.session).await;
}

#[tokio::test]
async fn by_hand_counts_as_compensated_and_ends_the_rollback_when_nothing_is_left() {
    let bench = Bench::new().await;
    let effects = halted(&bench, 1).await;
    let state = bench.resolve_letter(bench.the_letter().await).await.expect("resolve");
    assert_eq!(state, SessionState::Compensated, "nothing is left: no worker is needed");
    assert_eq!(entries(&bench).await, ["compensated"]);
    assert_eq!(bench.effect_state(effects[0]).await, "compensated");
    assert_eq!(bench.settled_as().await, "resolved by olga: refunded by hand");
    let late = bench.text("SELECT state FROM undolog_rollbacks WHERE session_id = $1").await;
    assert_eq!(late, "compensated");
    bench.check().await;
    settled_check(bench.db.pool(), bench.session).await;
}

#[tokio::test]
async fn what_stands_above_stops_the_walk_until_it_is_settled_too() {
    let bench = Bench::new().await;
    bench.org.set(bench.db.pool(), "on_dead_letter", "continue").await;
    pay(&bench, 3).await;
    let walker = Walker::start(&bench).await;
    let upper = Walker::call(walker.step(None).await);
    let lower = Walker::call(walker.step(Some(report_of(&upper, CallOutcome::Permanent))).await);
    bench.org.set(bench.db.pool(), "on_dead_letter", "halt").await;
    let next = walker.step(Some(report_of(&lower, CallOutcome::Permanent))).await;
    assert!(matches!(next, Next::Done), "{next:?}");
    assert_eq!(entries(&bench).await, ["pending", "failed", "failed"]);
    let letters = bench.open_letters().await;
    let of = |undo_id| {
        let found = letters.iter().find(|item| item.dead_letter.undo_id == Some(undo_id));
        found.expect("its letter").dead_letter.dead_letter_id
    };
    let state = bench.skip_letter(of(upper.undo_id)).await.expect("skip");
    assert_eq!(state, SessionState::Halted, "another one still stands above the open entry");
    let state = bench.skip_letter(of(lower.undo_id)).await.expect("skip");
    assert_eq!(state, SessionState::Compensating);
    assert_eq!(Walker::claim(&bench).await.succeed().await.len(), 1);
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
}

#[tokio::test]
async fn a_missing_result_is_retried_skipped_or_resolved() {
    let needs = json!({"arg_mapping": {"id": "{result.id}"}});
    for (verb, entry, effect_state) in
        [("skip", "skipped:operator", "unknown"), ("resolve", "compensated", "compensated")]
    {
        let bench = Bench::new().await;
        bench.compensation("undo_pay", needs.clone()).await;
        let effect = lost_payment(&bench, 1).await;
        Walker::start(&bench).await.succeed().await;
        assert_eq!(bench.session_state().await, "halted");
        let letter = bench.the_letter().await;
        let settled = match verb {
            "skip" => bench.skip_letter(letter).await,
            _ => bench.resolve_letter(letter).await,
        };
        assert_eq!(settled.expect(verb), SessionState::Compensated);
        assert_eq!(entries(&bench).await, [entry], "{verb}");
        assert_eq!(bench.effect_state(effect).await, effect_state, "{verb}");
        bench.check().await;
        settled_check(bench.db.pool(), bench.session).await;
    }
    // A retry without the result meets the same wall; with written arguments it does not.
    let bench = Bench::new().await;
    let effect = grant_with(&bench, r#"{"id":"{result.id}"}"#).await;
    bench.run_sql("UPDATE undolog_orgs SET settle_ms = 0").await;
    bench.continue_on_failure().await;
    bench.fail(effect, undolog_core::state::FailedEffect::Unknown).await.expect("unknown");
    Walker::start(&bench).await.succeed().await;
    bench.retry_letter(bench.the_letter().await).await.expect("retry");
    Walker::claim(&bench).await.succeed().await;
    assert_eq!(entries(&bench).await, ["failed"], "nothing has changed");
    let letter = bench.the_letter().await;
    bench.retry_with(letter, Some(r#"{"id":"p-9"}"#), false).await.expect("retry");
    let made = Walker::claim(&bench).await.succeed().await;
    assert_eq!(made, [(effect, r#"{"id":"p-9"}"#.to_owned())]);
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
}

#[tokio::test]
async fn an_operator_who_retries_an_unknown_call_wants_it_compensated() {
    for fresh_key in [false, true] {
        let bench = Bench::new().await;
        bench.compensation("undo_pay", json!({"on_unknown": "dead_letter"})).await;
        let effect = lost_payment(&bench, 1).await;
        Walker::start(&bench).await.succeed().await;
        let letter = bench.the_letter().await;
        bench.retry_with(letter, None, fresh_key).await.expect("retry");
        let made = Walker::claim(&bench).await.succeed().await;
        assert_eq!(made.len(), 1, "fresh key: {fresh_key}");
        assert_eq!(bench.effect_state(effect).await, "compensated");
        assert_eq!(bench.session_state().await, "compensated");
        bench.check().await;
    }
}

#[tokio::test]
async fn what_nobody_knows_of_an_irreversible_call_is_no_matter_of_retries() {
    let bench = Bench::new().await;
    let effect = lost_wipe(&bench, 1).await;
    Walker::start(&bench).await.succeed().await;
    assert_eq!(bench.session_state().await, "halted");
    let letter = bench.the_letter().await;
    refused(bench.retry_letter(letter).await, Reason::OutcomeUnknown);
    refused(bench.skip_letter(letter).await, Reason::OutcomeUnknown);
    refused(bench.resolve_letter(letter).await, Reason::OutcomeUnknown);
    let resolved = bench.resolve_effect(effect, Resolution::NotApplied).await.expect("known");
    assert_eq!(resolved.session_state, SessionState::Compensated);
    bench.check().await;
    settled_check(bench.db.pool(), bench.session).await;
}

#[tokio::test]
async fn a_late_commit_is_undone_again_under_a_new_key_or_accepted() {
    for verb in ["retry", "skip", "resolve"] {
        let bench = Bench::new().await;
        let effect = lost_payment(&bench, 1).await;
        Walker::start(&bench).await.succeed().await;
        assert_eq!(bench.session_state().await, "compensated");
        commit_late(&bench, effect).await;
        assert_eq!(bench.session_state().await, "halted");
        let letter = bench.the_letter().await;
        match verb {
            "skip" => {
                let state = bench.skip_letter(letter).await.expect("skip");
                assert_eq!(state, SessionState::Compensated);
            }
            "resolve" => {
                let state = bench.resolve_letter(letter).await.expect("resolve");
                assert_eq!(state, SessionState::Compensated);
            }
            _ => {
                let state = bench.retry_letter(letter).await.expect("retry");
                assert_eq!(state, SessionState::Compensating);
                assert_eq!(Walker::claim(&bench).await.succeed().await.len(), 1);
                assert_eq!(entries(&bench).await, ["compensated", "compensated"]);
                assert_eq!(outcomes(&bench).await, ["succeeded", "succeeded"]);
            }
        }
        assert_eq!(bench.effect_state(effect).await, "compensated", "{verb}");
        assert_eq!(bench.session_state().await, "compensated", "{verb}");
        bench.check().await;
        settled_check(bench.db.pool(), bench.session).await;
    }
}

#[tokio::test]
async fn a_contradiction_is_only_resolved_by_hand() {
    let bench = Bench::new().await;
    let effect = lost_payment(&bench, 1).await;
    bench.resolve_effect(effect, Resolution::NotApplied).await.expect("said so");
    refused(bench.commit(effect, &json!(1)).await, Reason::Contradicted);
    let letter = bench.the_letter().await;
    refused(bench.retry_letter(letter).await, Reason::Contradicted);
    refused(bench.skip_letter(letter).await, Reason::Contradicted);
    let state = bench.resolve_letter(letter).await.expect("by hand");
    assert_eq!(state, SessionState::Active);
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
}

#[tokio::test]
async fn a_partial_rollback_that_halted_gives_the_session_back_after_all() {
    let bench = Bench::new().await;
    pay(&bench, 1).await;
    let point = bench.savepoint().await;
    let effect = bench.grant(2, "pay").await;
    bench.commit(effect, &json!({"id": "p-2"})).await.expect("commit");
    let position = u32::try_from(point.position).expect("a position");
    bench.rollback(RollbackScope::ToSavepoint(position)).await.expect("rollback");
    let walker = Walker::claim(&bench).await;
    let call = Walker::call(walker.step(None).await);
    walker.step(Some(report_of(&call, CallOutcome::Permanent))).await;
    assert_eq!(bench.session_state().await, "halted");
    let state = bench.resolve_letter(bench.the_letter().await).await.expect("resolve");
    assert_eq!(state, SessionState::Active, "what lies below the savepoint stays");
    assert_eq!(entries(&bench).await, ["pending", "compensated"]);
    bench.check().await;
}

#[tokio::test]
async fn a_late_success_of_a_replaced_entry_spares_the_new_one() {
    let bench = Bench::new().await;
    let effects = pay(&bench, 1).await;
    let walker = Walker::start(&bench).await;
    let call = Walker::call(walker.step(None).await);
    // Its worker goes quiet; whoever comes next does not get through.
    lease_over(&bench).await;
    let other = Walker::claim_as(&bench, "worker-2").await;
    other.step(None).await;
    time_passes(&bench).await;
    let mut other = Walker::claim_as(&bench, "worker-2").await;
    other.place = Place::OwnProcess;
    let second = Walker::call(other.step(None).await);
    other.step(Some(report_of(&second, CallOutcome::Permanent))).await;
    bench.retry_with(bench.the_letter().await, None, true).await.expect("retry");
    assert_eq!(entries(&bench).await, ["skipped:superseded", "pending"]);
    let next = walker.step(Some(report_of(&call, CallOutcome::Done))).await;
    assert!(matches!(next, Next::Lost), "{next:?}");
    assert_eq!(entries(&bench).await, ["compensated:superseded", "skipped:superseded"]);
    assert!(Walker::claim(&bench).await.succeed().await.is_empty(), "nothing is undone twice");
    assert_eq!(bench.effect_state(effects[0]).await, "compensated");
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
}

#[tokio::test]
async fn a_late_commit_after_a_partial_rollback_takes_the_session_once_more() {
    let bench = Bench::new().await;
    pay(&bench, 1).await;
    let point = bench.savepoint().await;
    let effect = lost_payment(&bench, 2).await;
    let position = u32::try_from(point.position).expect("a position");
    bench.rollback(RollbackScope::ToSavepoint(position)).await.expect("rollback");
    Walker::claim(&bench).await.succeed().await;
    assert_eq!(bench.session_state().await, "active");
    commit_late(&bench, effect).await;
    let state = bench.retry_letter(bench.the_letter().await).await.expect("retry");
    assert_eq!(state, SessionState::Compensating);
    assert_eq!(Walker::claim(&bench).await.succeed().await.len(), 1);
    assert_eq!(bench.session_state().await, "active");
    assert_eq!(entries(&bench).await, ["pending", "compensated", "compensated"]);
    bench.check().await;
}

/// A payment whose compensation is called with these arguments.
async fn grant_with(bench: &Bench, args: &str) -> Uuid {
    let mut input = bench.input(1, "pay", &json!({"step": 1}));
    input.compensation = Some(undolog_store::intercept::DescriptorInput {
        fn_name: "undo_pay".into(),
        fn_version: None,
        args: args.as_bytes().to_vec(),
        max_retries: None,
        retry_backoff_ms: None,
    });
    crate::bench::executed(&bench.send(input).await.expect("a grant"))
}
