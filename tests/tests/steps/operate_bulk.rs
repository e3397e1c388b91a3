//! Many dead letters at once: which, in which order, and first without doing it.

use serde_json::json;
use undolog_core::{Reason, retry::CallOutcome, state::SessionState};
use undolog_store::{
    operate::{
        Changed, DeadLetterFilter, RetryOptions, list_dead_letters, resolve_all, retry_all,
        skip_all,
    },
    read::Paging,
    sessions::RollbackScope,
};
use undolog_tests::check::settled_check;
use uuid::Uuid;

use crate::{
    bench::{Bench, refused},
    operate_kit::{all_failed, halted, lost_wipe},
    walker::{Walker, entries, report_of},
};

fn everything() -> DeadLetterFilter {
    DeadLetterFilter { all: true, ..Default::default() }
}

impl Bench {
    async fn retry_bulk(
        &self,
        filter: DeadLetterFilter,
        options: RetryOptions,
        dry_run: bool,
    ) -> Changed {
        retry_all(&self.store, &self.operator(), &filter, options, dry_run).await.expect("retry")
    }
}

fn fresh() -> RetryOptions {
    RetryOptions { fresh_key: true, ..Default::default() }
}

#[tokio::test]
async fn a_verb_that_takes_several_calls_takes_nothing_twice() {
    let bench = Bench::new().await;
    halted(&bench, 1).await;
    let first = bench.retry_bulk(everything(), RetryOptions::default(), false).await;
    assert_eq!(first.changed(), 1);
    // The endpoint refuses still, before the next call of the verb.
    let walker = Walker::claim(&bench).await;
    let call = Walker::call(walker.step(None).await);
    walker.step(Some(report_of(&call, CallOutcome::Permanent))).await;
    let rest = DeadLetterFilter { created_until: Some(first.as_of), ..everything() };
    let second = bench.retry_bulk(rest, RetryOptions::default(), false).await;
    assert_eq!(second.changes, [], "the verb would never end");
    assert_eq!(bench.session_state().await, "halted");
    let again = bench.retry_bulk(everything(), RetryOptions::default(), false).await;
    assert_eq!(again.changed(), 1, "the verb given again takes it");
}

#[tokio::test]
async fn a_bulk_retry_keeps_the_order_of_the_stack() {
    for options in [RetryOptions::default(), fresh()] {
        let bench = Bench::new().await;
        let effects = all_failed(&bench, 4).await;
        assert_eq!(bench.session_state().await, "halted");
        let changed = bench.retry_bulk(everything(), options.clone(), false).await;
        assert_eq!((changed.changed(), changed.more), (4, false), "{changed:?}");
        assert_eq!(bench.session_state().await, "compensating");
        bench.check().await;
        let made = Walker::claim(&bench).await.succeed().await;
        let order: Vec<Uuid> = made.into_iter().map(|(effect, _)| effect).collect();
        assert_eq!(order, effects.into_iter().rev().collect::<Vec<_>>(), "{options:?}");
        assert_eq!(bench.session_state().await, "compensated");
        bench.check().await;
        settled_check(bench.db.pool(), bench.session).await;
    }
}

#[tokio::test]
async fn a_dry_run_says_what_would_be_and_writes_nothing() {
    let bench = Bench::new().await;
    let wipe = lost_wipe(&bench, 1).await;
    let before_events = {
        halted_above(&bench).await;
        bench.count("undolog_effect_events").await
    };
    let changed = bench.retry_bulk(everything(), RetryOptions::default(), true).await;
    assert_eq!(changed.changes.len(), 2);
    assert_eq!(changed.changed(), 1, "the payment would go back to work");
    let refused: Vec<_> = changed.changes.iter().filter_map(|c| c.why_not()).collect();
    assert_eq!(refused, [Reason::OutcomeUnknown]);
    assert!(changed.changes[0].is_changed(), "those that can be changed come first");
    assert_eq!(bench.session_state().await, "halted");
    assert_eq!(bench.open_letters().await.len(), 2);
    assert_eq!(bench.count("undolog_effect_events").await, before_events);
    assert_eq!(bench.effect_state(wipe).await, "unknown");
    bench.check().await;
    let (operator, filter) = (bench.operator(), everything());
    let skipped = skip_all(&bench.store, &operator, &filter, "gone".into(), false).await;
    assert_eq!(skipped.expect("skip").changed(), 1, "one refusal stops no other");
    assert_eq!(bench.open_letters().await.len(), 1);
    bench.check().await;
}

/// A payment above the lost call, refused for good.
async fn halted_above(bench: &Bench) {
    use undolog_core::retry::CallOutcome;
    let effect = bench.grant(2, "pay").await;
    bench.commit(effect, &json!({"id": "p-2"})).await.expect("commit");
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    let walker = Walker::claim(bench).await;
    let call = Walker::call(walker.step(None).await);
    walker.step(Some(crate::walker::report_of(&call, CallOutcome::Permanent))).await;
}

#[tokio::test]
async fn a_filter_narrows_and_everything_must_be_asked_for() {
    let bench = Bench::new().await;
    halted(&bench, 1).await;
    let letter = bench.the_letter().await;
    let operator = bench.operator();
    let nothing = DeadLetterFilter::default();
    let empty = retry_all(&bench.store, &operator, &nothing, RetryOptions::default(), true).await;
    refused(empty, Reason::InvalidArgument);
    let both = DeadLetterFilter { dead_letter_ids: vec![letter], ..everything() };
    let mixed = skip_all(&bench.store, &operator, &both, "x".into(), true).await;
    refused(mixed, Reason::InvalidArgument);
    let args = RetryOptions { args: Some(b"{}".to_vec()), ..Default::default() };
    let spread = retry_all(&bench.store, &operator, &everything(), args, true).await;
    refused(spread, Reason::InvalidArgument);
    let blank = resolve_all(&bench.store, &operator, &everything(), String::new(), true).await;
    refused(blank, Reason::InvalidArgument);

    let session = |session_id| DeadLetterFilter { session_id, ..Default::default() };
    let tool = |name: &str| DeadLetterFilter { tool_name: name.into(), ..Default::default() };
    let comp = |name: &str| DeadLetterFilter { compensation_fn: name.into(), ..Default::default() };
    let reason = |name: &str| DeadLetterFilter { reason: name.into(), ..Default::default() };
    let older = |n| DeadLetterFilter { older_than_seconds: n, ..Default::default() };
    for (filter, found) in [
        (session(Some(bench.session)), 1),
        (session(Some(Uuid::new_v4())), 0),
        (tool("pay"), 1),
        (tool("put"), 0),
        (comp("undo_pay"), 1),
        (comp("undo_put"), 0),
        (reason("PERMANENT"), 1),
        (reason("EXHAUSTED"), 0),
        (older(3600), 0),
        (everything(), 1),
    ] {
        let changed = bench.retry_bulk(filter.clone(), RetryOptions::default(), true).await;
        assert_eq!(changed.changed(), found, "{filter:?}");
        let paging = Paging::default();
        let listed = list_dead_letters(&bench.store, &operator, &filter, false, &paging).await;
        assert_eq!(listed.expect("a list").rows.len(), found, "{filter:?}");
    }
    bench.run_sql("UPDATE undolog_dead_letters SET created_at = now() - interval '2 hours'").await;
    let changed = bench.retry_bulk(older(3600), RetryOptions::default(), true).await;
    assert_eq!(changed.changed(), 1);
}

#[tokio::test]
async fn named_ones_are_told_apart() {
    let bench = Bench::new().await;
    halted(&bench, 2).await;
    let letter = bench.the_letter().await;
    bench.skip_letter(letter).await.expect("skip");
    let unknown = Uuid::now_v7();
    let filter = DeadLetterFilter::ids(vec![letter, unknown]);
    let changed = bench.retry_bulk(filter, RetryOptions::default(), false).await;
    let why: Vec<_> = changed.changes.iter().map(|c| (c.dead_letter_id, c.why_not())).collect();
    assert_eq!(
        why,
        [(letter, Some(Reason::DeadLetterClosed)), (unknown, Some(Reason::DeadLetterNotFound))]
    );
    let mut stranger = bench.operator();
    stranger.org_id = undolog_tests::world::Org::create(bench.db.pool(), "evil").await.id;
    let filter = DeadLetterFilter::ids(vec![letter]);
    let options = RetryOptions::default();
    let foreign = retry_all(&bench.store, &stranger, &filter, options, false).await.expect("told");
    assert_eq!(foreign.changes[0].why_not(), Some(Reason::DeadLetterNotFound));
    bench.check().await;
}

#[tokio::test]
async fn racing_bulks_settle_each_letter_once() {
    let bench = std::sync::Arc::new(Bench::new().await);
    all_failed(&bench, 5).await;
    let mut tasks = Vec::new();
    for _ in 0..6 {
        let bench = bench.clone();
        tasks.push(tokio::spawn(async move {
            bench.retry_bulk(everything(), RetryOptions::default(), false).await
        }));
    }
    let mut changed = 0;
    for task in tasks {
        let told = task.await.expect("no panic");
        let closed = |why| why == Some(Reason::DeadLetterClosed);
        assert!(told.changes.iter().all(|c| c.is_changed() || closed(c.why_not())), "{told:?}");
        changed += told.changed();
    }
    assert_eq!(changed, 5);
    assert_eq!(entries(&bench).await, ["pending"; 5]);
    bench.check().await;
}

#[tokio::test]
async fn one_call_takes_five_hundred_and_says_that_there_are_more() {
    let bench = Bench::new().await;
    halted(&bench, 1).await;
    bench
        .run_sql(
            "WITH n AS (SELECT generate_series(2, 504) AS n), \
             u AS (INSERT INTO undolog_undo_stack (undo_id, org_id, session_id, effect_id, \
               stack_position, compensation_fn, compensation_version, compensation_args, state) \
               SELECT gen_random_uuid(), org_id, session_id, effect_id, n, compensation_fn, \
                 compensation_version, compensation_args, 'failed' FROM undolog_undo_stack, n \
               RETURNING *) \
             INSERT INTO undolog_dead_letters (org_id, session_id, effect_id, undo_id, reason, \
               created_at) \
             SELECT org_id, session_id, effect_id, undo_id, 'EXHAUSTED', now() FROM u",
        )
        .await;
    let dry = bench.retry_bulk(everything(), RetryOptions::default(), true).await;
    assert_eq!((dry.changes.len(), dry.changed(), dry.more), (500, 500, true));
    let filter = everything();
    let note = "all by hand".to_owned();
    let first = resolve_all(&bench.store, &bench.operator(), &filter, note.clone(), false).await;
    assert_eq!(first.expect("the upper ones").changed(), 500);
    assert_eq!(bench.session_state().await, "halted");
    let rest = resolve_all(&bench.store, &bench.operator(), &filter, note, false).await;
    let rest = rest.expect("the rest");
    assert_eq!((rest.changed(), rest.more), (4, false));
    assert_eq!(bench.session_state().await, SessionState::Compensated.as_str());
}

#[tokio::test]
async fn the_list_has_pages() {
    let bench = Bench::new().await;
    all_failed(&bench, 5).await;
    let mut seen = Vec::new();
    let mut paging = Paging { size: 2, token: String::new() };
    loop {
        let filter = DeadLetterFilter::default();
        let page =
            list_dead_letters(&bench.store, &bench.operator(), &filter, false, &paging).await;
        let page = page.expect("a page");
        seen.extend(page.rows.iter().map(|item| item.dead_letter.dead_letter_id));
        if page.next_token.is_empty() {
            break;
        }
        paging.token = page.next_token;
    }
    assert_eq!(seen.len(), 5);
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 5, "each once");
    bench.skip_letter(seen[0]).await.expect("skip");
    assert_eq!(bench.letters(true).await.len(), 1, "closed ones are listed apart");
    assert_eq!(bench.open_letters().await.len(), 4);
}
