//! Probes: when an unknown call is asked about, and what an answer does.

use serde_json::json;
use undolog_core::{Reason, Tier, json::parse_strict, probe::Answer, state::FailedEffect};
use undolog_store::{
    Store,
    probes::{self, SettleProbe, Settled},
    sessions::RollbackScope,
    walk::Next,
};
use uuid::Uuid;

use crate::{
    bench::{Bench, refused, replayed},
    walker::{Walker, body, letters, run, time_passes, worker_store},
};

/// A payment of which nobody knows whether it happened, with a probe.
async fn unknown(bench: &Bench) -> Uuid {
    bench.continue_on_failure().await;
    let probe = json!({
        "method": "GET", "endpoint": "https://pay.example/by-key/{effect_id}?step={args.step}",
        "happened": {"status": [200], "result": "/charge"}, "did_not_happen": {"status": [404]},
    });
    bench
        .tool("pay", Tier::Compensable, |tool| {
            tool.compensation_ref = "undo_pay".into();
            tool.probe = probe.to_string().into_bytes();
        })
        .await;
    let effect = bench.grant(1, "pay").await;
    bench.fail(effect, FailedEffect::Unknown).await.expect("it is unknown");
    // Engines run.
    bench.expire(Uuid::nil()).await;
    effect
}

/// Moves what the effect's clockwork looks at into the past.
async fn back(bench: &Bench, seconds: u32) {
    let sql = format!(
        "UPDATE undolog_effect_log SET lost_at = lost_at - interval '{seconds} seconds', \
         probed_at = probed_at - interval '{seconds} seconds'"
    );
    run(bench.db.pool(), &sql).await;
}

async fn asked(bench: &Bench, store: &Store) -> usize {
    probes::claim(store, bench.org.id).await.expect("claim").len()
}

async fn settle(bench: &Bench, store: &Store, effect_id: Uuid, answer: Answer) -> Settled {
    let (org_id, session_id) = (bench.org.id, bench.session);
    let step = SettleProbe { org_id, session_id, effect_id, attempt: 1, answer };
    store.run(step).await.expect("settle")
}

fn happened() -> Answer {
    Answer::Happened(parse_strict(br#"{"id":"p-1"}"#).expect("JSON"))
}

async fn probe_row(bench: &Bench) -> (i32, Option<String>, Option<String>) {
    sqlx::query_as("SELECT probe_count, probe_answer, probe_error FROM undolog_effect_log")
        .fetch_one(bench.db.pool())
        .await
        .expect("the effect")
}

#[tokio::test]
async fn questions_are_asked_with_doubling_pauses_and_then_no_more() {
    let bench = Bench::new().await;
    let effect = unknown(&bench).await;
    let store = worker_store(&bench).await;
    for question in 0..6 {
        let pause = 60 << question;
        back(&bench, pause - 2).await;
        assert_eq!(asked(&bench, &store).await, 0, "question {question} came too early");
        back(&bench, 3).await;
        let due = probes::due_orgs(&store).await.expect("due");
        assert_eq!(due, [bench.org.id]);
        let questions = probes::claim(&store, bench.org.id).await.expect("claim");
        assert_eq!(questions.len(), 1, "question {question}");
        let (_, call) = questions[0].prepare().expect("a question");
        assert_eq!(call.shown_url(), format!("https://pay.example/by-key/{effect}?step=1"));
        let why = Answer::CannotTell("HTTP 500 \0".to_owned());
        assert_eq!(settle(&bench, &store, effect, why).await, Settled::Stays);
    }
    back(&bench, 86_400).await;
    assert_eq!(asked(&bench, &store).await, 0, "six questions are enough");
    let row = probe_row(&bench).await;
    assert_eq!(row, (6, Some("cannot_tell".into()), Some("HTTP 500 \u{2400}".into())));
    run(bench.db.pool(), "UPDATE undolog_effect_log SET lost_at = now() - interval '90 s'").await;
    run(bench.db.pool(), "UPDATE undolog_effect_log SET probed_at = now() - interval '1 h'").await;
    assert_eq!(asked(&bench, &store).await, 1, "it was lost anew");
    bench.check().await;
}

#[tokio::test]
async fn a_call_that_happened_is_committed_with_its_result() {
    let bench = Bench::new().await;
    let effect = unknown(&bench).await;
    let store = worker_store(&bench).await;
    refused(bench.ask(1, "pay").await, Reason::OutcomeUnknown);
    assert_eq!(settle(&bench, &store, effect, happened()).await, Settled::Resolved);
    assert_eq!(bench.effect_state(effect).await, "committed");
    assert_eq!(replayed(&bench.ask(1, "pay").await.expect("replay")), json!({"id": "p-1"}));
    let actor = "SELECT actor FROM undolog_effect_events WHERE session_id = $1 \
        AND to_state = 'committed' AND subject = 'effect'";
    assert_eq!(bench.text(actor).await, "system:probe");
    let late = settle(&bench, &store, effect, Answer::DidNotHappen).await;
    assert_eq!(late, Settled::TooLate, "it is known already");
    bench.check().await;
}

#[tokio::test]
async fn a_call_that_may_still_be_running_has_not_failed_to_happen() {
    let bench = Bench::new().await;
    let effect = unknown(&bench).await;
    let store = worker_store(&bench).await;
    back(&bench, 61).await;
    assert_eq!(asked(&bench, &store).await, 1);
    let early = settle(&bench, &store, effect, Answer::DidNotHappen).await;
    assert_eq!(early, Settled::Stays, "its lease has only just run out");
    assert_eq!(bench.effect_state(effect).await, "unknown");
    assert_eq!(probe_row(&bench).await.0, 0, "an early answer is worth no question");
    back(&bench, 900).await;
    let after = settle(&bench, &store, effect, Answer::DidNotHappen).await;
    assert_eq!(after, Settled::Resolved);
    assert_eq!(bench.effect_state(effect).await, "failed");
    bench.grant(1, "pay").await;
    bench.check().await;
}

/// Answers with what is known of the session's one entry once its call needs the probe.
async fn walking(bench: &Bench) -> (Uuid, Store) {
    let more = json!({"on_unknown": "probe", "arg_mapping": {"id": "{result.id}"}});
    bench.compensation("undo_pay", more).await;
    let effect = unknown(bench).await;
    back(bench, 901).await;
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    let walker = Walker::claim(bench).await;
    assert!(matches!(walker.step(None).await, Next::Waiting), "the probe is asked first");
    assert_eq!(letters(bench).await, []);
    (effect, walker.store)
}

#[tokio::test]
async fn a_walk_waits_for_the_probe_and_uses_its_result() {
    let bench = Bench::new().await;
    let (effect, store) = walking(&bench).await;
    assert_eq!(settle(&bench, &store, effect, happened()).await, Settled::Resolved);
    time_passes(&bench).await;
    let walker = Walker::claim(&bench).await;
    let call = Walker::call(walker.step(None).await);
    assert_eq!(body(&call.call), r#"{"id":"p-1"}"#);
    bench.check().await;
}

#[tokio::test]
async fn a_walk_undoes_nothing_when_the_probe_says_no() {
    let bench = Bench::new().await;
    let (effect, store) = walking(&bench).await;
    let settled = settle(&bench, &store, effect, Answer::DidNotHappen).await;
    assert_eq!(settled, Settled::Resolved);
    time_passes(&bench).await;
    let walker = Walker::claim(&bench).await;
    assert!(matches!(walker.step(None).await, Next::Done));
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
}

#[tokio::test]
async fn a_walk_asks_a_human_when_the_probe_cannot_tell() {
    let bench = Bench::new().await;
    walking(&bench).await;
    run(
        bench.db.pool(),
        "UPDATE undolog_effect_log SET probe_count = 6, probed_at = now() - interval '2 minutes'",
    )
    .await;
    time_passes(&bench).await;
    let walker = Walker::claim(&bench).await;
    assert!(matches!(walker.step(None).await, Next::Done));
    assert_eq!(letters(&bench).await, [("OUTCOME_UNKNOWN".to_owned(), true)]);
    assert_eq!(bench.session_state().await, "halted");
    bench.check().await;
}
