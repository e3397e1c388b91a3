//! Snapshots and replays: what a resuming client is given is what the events say, whatever was
//! written as a snapshot and taken back since.

use std::collections::BTreeMap;

use proptest::{
    collection::vec,
    prelude::{Strategy, prop_oneof},
    test_runner::{Config, TestRunner},
};
use serde_json::{Value, json};
use undolog_core::{
    Reason,
    limits::SNAPSHOT_EVERY,
    role::Role,
    state::{EffectEvent, EffectState, FailedEffect, effect::transition},
};
use undolog_store::{
    StepError, Store,
    replay::{Replay, Replayed, WriteSnapshot, Written},
    sessions::RollbackScope,
};
use undolog_tests::wait::eventually;
use uuid::Uuid;

use crate::{
    bench::{Bench, refused},
    walker::{Walker, worker_store},
};

const EVERY: u32 = SNAPSHOT_EVERY.unsigned_abs();

/// A session whose calls are counted, and what was committed in it.
struct Run {
    bench: Bench,
    worker: Store,
    step: u32,
    committed: BTreeMap<Uuid, Value>,
}

impl Run {
    async fn new() -> Self {
        let bench = Bench::new().await;
        let worker = worker_store(&bench).await;
        Self { bench, worker, step: 0, committed: BTreeMap::new() }
    }

    async fn commit_at(&mut self, step: u32, output: Value) {
        let effect = self.bench.grant(step, "pay").await;
        self.bench.commit(effect, &output).await.expect("commit");
        self.committed.insert(effect, output);
    }

    async fn commit(&mut self, calls: u32) {
        for _ in 0..calls {
            self.step += 1;
            self.commit_at(self.step, json!({"n": self.step})).await;
        }
    }

    async fn write(&self) -> Written {
        let step = WriteSnapshot { org_id: self.bench.org.id, session_id: self.bench.session };
        self.worker.run(step).await.expect("a step")
    }

    async fn write_all(&self) -> u32 {
        let mut written = 0;
        while self.write().await == Written::Snapshot {
            written += 1;
        }
        written
    }

    /// Undoes everything at or above a position and walks the rollback to its end.
    async fn undo_from(&mut self, position: u32) {
        self.bench.rollback(RollbackScope::ToSavepoint(position)).await.expect("rollback");
        if self.bench.session_state().await == "compensating" {
            Walker::claim(&self.bench).await.succeed().await;
        }
        let undone: Vec<Uuid> = sqlx::query_scalar(
            "SELECT effect_id FROM undolog_effect_log WHERE session_id = $1 AND position >= $2",
        )
        .bind(self.bench.session)
        .bind(i32::try_from(position).expect("a position"))
        .fetch_all(self.bench.db.pool())
        .await
        .expect("the undone effects");
        self.committed.retain(|effect, _| !undone.contains(effect));
    }

    async fn replay(&self) -> Vec<Replayed> {
        read(&self.bench.store, &self.bench).await.expect("a replay")
    }

    /// Snapshots and what came after them are the full fold.
    async fn check(&self) {
        let calls = self.replay().await;
        let found: BTreeMap<Uuid, Value> = calls
            .iter()
            .map(|call| (call.effect_id, serde_json::from_slice(&call.output).expect("JSON")))
            .collect();
        assert_eq!(found.len(), calls.len(), "a call came twice");
        assert_eq!(found.len(), self.committed.len(), "another number of calls");
        assert_eq!(found, self.committed);
        let folded: Vec<Uuid> = sqlx::query_scalar(
            "SELECT subject_id FROM (SELECT DISTINCT ON (subject_id) subject_id, to_state \
             FROM undolog_effect_events WHERE session_id = $1 AND subject = 'effect' \
             ORDER BY subject_id, seq DESC) AS newest \
             WHERE to_state = 'committed' ORDER BY subject_id",
        )
        .bind(self.bench.session)
        .fetch_all(self.bench.db.pool())
        .await
        .expect("the fold");
        assert_eq!(found.into_keys().collect::<Vec<_>>(), folded, "the events say otherwise");
    }

    async fn snapshots(&self) -> i64 {
        self.bench.count("undolog_session_snapshots").await
    }
}

async fn read(store: &Store, bench: &Bench) -> Result<Vec<Replayed>, StepError> {
    let mut replay = Replay::open(store, &bench.agent(), bench.session).await?;
    let mut calls = Vec::new();
    loop {
        let part = replay.next(store).await?;
        if part.is_empty() {
            return Ok(calls);
        }
        calls.extend(part);
    }
}

/// What happens to a session.
#[derive(Debug, Clone)]
enum Act {
    /// Calls that are committed, one after the other.
    Commit(u32),
    /// Calls that are committed in the opposite order of their steps.
    CommitBackwards(u32),
    /// A result that is too long for a snapshot.
    CommitLong,
    /// A call that fails without effect.
    FailCleanly,
    /// A call that fails and may have had an effect.
    FailDirtily,
    /// A worker writes what is due.
    Snapshot,
    /// The last so many positions are undone.
    Undo(u32),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (20..60_u32).prop_map(Act::Commit),
        1 => (2..20_u32).prop_map(Act::CommitBackwards),
        1 => proptest::strategy::Just(Act::CommitLong),
        1 => proptest::strategy::Just(Act::FailCleanly),
        1 => proptest::strategy::Just(Act::FailDirtily),
        3 => proptest::strategy::Just(Act::Snapshot),
        3 => (1..70_u32).prop_map(Act::Undo),
    ]
}

impl Run {
    async fn act(&mut self, act: &Act) {
        match act {
            Act::Commit(calls) => self.commit(*calls).await,
            Act::CommitBackwards(calls) => {
                for step in (self.step + 1..=self.step + calls).rev() {
                    self.commit_at(step, json!([step])).await;
                }
                self.step += calls;
            }
            Act::CommitLong => {
                self.step += 1;
                self.commit_at(self.step, json!("x".repeat(40_000))).await;
            }
            Act::FailCleanly => {
                self.step += 1;
                let effect = self.bench.grant(self.step, "pay").await;
                self.bench.fail(effect, FailedEffect::NotApplied).await.expect("fail");
            }
            Act::FailDirtily => {
                self.step += 1;
                let effect = self.bench.grant(self.step, "pay").await;
                self.bench.fail(effect, FailedEffect::MaybeApplied).await.expect("fail");
            }
            Act::Snapshot => {
                self.write_all().await;
            }
            Act::Undo(positions) => {
                let top = self.bench.savepoint().await.position.unsigned_abs();
                self.undo_from(top.saturating_sub(*positions).max(1)).await;
            }
        }
    }
}

#[test]
fn snapshots_and_later_events_are_the_full_fold() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    // Each case is a session of some hundred calls in a database of its own.
    let config =
        Config { cases: 4, max_shrink_iters: 12, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&vec(act(), 5..12), |mut acts| {
        // Whatever came before: a snapshot that is taken back in part, and one that says so.
        let end = [Act::Commit(60), Act::Snapshot, Act::Undo(30), Act::Commit(55), Act::Snapshot];
        acts.extend(end);
        runtime.block_on(async {
            let mut run = Run::new().await;
            run.bench.begin().await;
            run.bench.continue_on_failure().await;
            for act in &acts {
                run.act(act).await;
                run.check().await;
            }
            run.bench.check().await;
        });
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

#[tokio::test]
async fn every_fiftieth_commit_asks_for_a_snapshot_and_one_holds_fifty() {
    let mut run = Run::new().await;
    let tickets = "SELECT count(*)::text FROM apalis.jobs WHERE job ->> 'kind' = 'snapshot' \
                   AND job ->> 'subject' = $1::text";
    run.commit(EVERY - 1).await;
    assert_eq!(run.bench.text(tickets).await, "0");
    assert_eq!(run.write().await, Written::NotDue);
    run.commit(1).await;
    assert_eq!(run.bench.text(tickets).await, "1");
    run.commit(EVERY).await;
    assert_eq!(run.bench.text(tickets).await, "2", "tickets of neighbours do not collide");
    assert_eq!(run.write_all().await, 2);
    let held = run
        .bench
        .text(
            "SELECT string_agg(up_to_step || ':' || cardinality(effect_ids) || state_format, ' ' \
             ORDER BY up_to_step) FROM undolog_session_snapshots WHERE session_id = $1",
        )
        .await;
    assert_eq!(held, "50:50msgpack 100:50msgpack");
    run.check().await;
}

#[tokio::test]
async fn a_replay_is_read_from_snapshots() {
    let mut run = Run::new().await;
    run.commit(EVERY + 1).await;
    run.write_all().await;
    sqlx::query("UPDATE undolog_effect_log SET result_snapshot = '\"from its row\"'")
        .execute(run.bench.db.pool())
        .await
        .expect("a change that only the row has");
    let calls = run.replay().await;
    let from_rows = calls.iter().filter(|call| call.output == b"\"from its row\"").count();
    assert_eq!((calls.len(), from_rows), (51, 1));
}

#[tokio::test]
async fn what_was_undone_is_in_no_replay() {
    let mut run = Run::new().await;
    run.commit(EVERY * 2).await;
    run.write_all().await;
    run.undo_from(EVERY - 9).await;
    run.check().await;
    assert_eq!(run.committed.len(), 40);
    // A later snapshot says what it takes back of the first ones.
    run.commit(EVERY).await;
    assert_eq!(run.write_all().await, 1);
    run.check().await;
    let gone = "SELECT sum(cardinality(invalidated))::text FROM undolog_session_snapshots \
                WHERE session_id = $1";
    assert_eq!(run.bench.text(gone).await, "60");
    run.bench.check().await;
}

#[tokio::test]
async fn snapshots_of_one_session_are_written_one_after_the_other() {
    let mut run = Run::new().await;
    run.commit(EVERY).await;
    let session = run.bench.session.to_string();
    let mut other = run.bench.db.pool().begin().await.expect("begin");
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('undolog.snapshot:' || $1, 0))")
        .bind(&session)
        .execute(&mut *other)
        .await
        .expect("the lock of another worker");
    let step = WriteSnapshot { org_id: run.bench.org.id, session_id: run.bench.session };
    let worker = run.worker.clone();
    let writing = tokio::spawn(async move { worker.run(step).await });
    let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    eventually("the second writer waits or is done", async || {
        let waits: i64 =
            sqlx::query_scalar(waiting).fetch_one(run.bench.db.pool()).await.expect("the locks");
        if waits == 1 || writing.is_finished() { Ok(()) } else { Err(waits) }
    })
    .await;
    assert!(!writing.is_finished(), "it did not wait");
    other.commit().await.expect("commit");
    assert_eq!(writing.await.expect("a task").expect("a step"), Written::Snapshot);
    assert_eq!(run.snapshots().await, 1);
}

#[tokio::test]
async fn a_snapshot_that_cannot_be_read_costs_time_only() {
    let mut run = Run::new().await;
    run.commit(EVERY * 2).await;
    run.write_all().await;
    run.undo_from(EVERY * 2 - 4).await;
    for spoiled in ["state_bytes = '\\x00'", "state_format = 'cbor'"] {
        sqlx::query(&format!(
            "UPDATE undolog_session_snapshots SET {spoiled} WHERE up_to_step = {EVERY}"
        ))
        .execute(run.bench.db.pool())
        .await
        .expect("spoil it");
        run.check().await;
    }
}

#[tokio::test]
async fn calls_that_share_a_step_are_in_snapshots_too() {
    let mut run = Run::new().await;
    run.bench.org.set(run.bench.db.pool(), "on_step_conflict", "allow").await;
    for call in 0..2 * EVERY + 30 {
        let step = if call < EVERY * 2 { 7 } else { 8 };
        let input = run.bench.input(step, "pay", &json!({"call": call}));
        let effect = crate::bench::executed(&run.bench.send(input).await.expect("a grant"));
        run.bench.commit(effect, &json!(call)).await.expect("commit");
        run.committed.insert(effect, json!(call));
        if call % 25 == 0 {
            run.write_all().await;
        }
    }
    run.write_all().await;
    assert!(run.snapshots().await >= 1);
    run.check().await;
}

#[tokio::test]
async fn a_replay_is_refused_where_a_call_would_be() {
    let mut run = Run::new().await;
    run.commit(2).await;
    let stranger = run.bench.caller(Role::Agent, "agent-2");
    let opened = Replay::open(&run.bench.store, &stranger, run.bench.session).await;
    refused(opened, Reason::SessionNotFound);
    run.bench.complete().await.expect("complete");
    run.check().await;
    let sealed = async |value: &str| {
        sqlx::query(&format!("UPDATE undolog_sessions SET sealed_at = {value}"))
            .execute(run.bench.db.pool())
            .await
            .expect("seal it");
    };
    sealed("now()").await;
    refused(read(&run.bench.store, &run.bench).await, Reason::SessionExpired);
    sealed("NULL").await;
    run.bench.rollback(RollbackScope::Whole).await.expect("rollback");
    refused(read(&run.bench.store, &run.bench).await, Reason::SessionCompensating);
    Walker::claim(&run.bench).await.succeed().await;
    refused(read(&run.bench.store, &run.bench).await, Reason::SessionCompensated);
}

#[tokio::test]
async fn a_replay_tells_which_calls_must_not_run_as_others() {
    let mut run = Run::new().await;
    run.bench.begin().await;
    run.bench.continue_on_failure().await;
    run.commit(2).await;
    run.undo_from(2).await;
    let mut expected = Vec::new();
    run.bench.grant(4, "pay").await;
    expected.push((4, "executing"));
    let failed = run.bench.grant(5, "pay").await;
    run.bench.fail(failed, FailedEffect::NotApplied).await.expect("fail");
    let failed = run.bench.grant(6, "pay").await;
    run.bench.fail(failed, FailedEffect::MaybeApplied).await.expect("fail");
    expected.push((6, "failed"));
    let failed = run.bench.grant(7, "pay").await;
    run.bench.fail(failed, FailedEffect::Unknown).await.expect("fail");
    expected.push((7, "unknown"));
    run.bench.ask(8, "wipe").await.expect("asked");
    expected.push((8, "pending"));
    let mut replay = Replay::open(&run.bench.store, &run.bench.agent(), run.bench.session)
        .await
        .expect("a replay");
    assert_eq!(replay.next_step_index(), 9);
    let open: Vec<_> =
        replay.next_open().into_iter().map(|call| (call.step_index, call.state)).collect();
    let expected: Vec<_> = expected.into_iter().map(|(step, s)| (step, s.to_owned())).collect();
    assert_eq!(open, expected, "no committed, undone or cleanly failed one is among them");
    assert_eq!(replay.next_open(), []);
    let calls = run.replay().await;
    assert_eq!(calls.iter().map(|c| (c.step_index, c.position)).collect::<Vec<_>>(), [(1, 1)]);
    run.bench.check().await;
}

#[test]
fn what_left_the_committed_state_never_comes_back() {
    // Snapshots rest on it: an effect is in at most one of them.
    use undolog_core::Tier::{Compensable, Irreversible};
    for tier in [Compensable, Irreversible] {
        let mut reached = vec![EffectState::Committed];
        let mut at = 0;
        while at < reached.len() {
            for event in EffectEvent::ALL {
                if let Some(to) = transition(Some(reached[at]), *event, tier)
                    && !reached.contains(&to)
                {
                    assert_ne!(to, EffectState::Committed);
                    reached.push(to);
                }
            }
            at += 1;
        }
        for state in reached.into_iter().skip(1) {
            for event in EffectEvent::ALL {
                assert_ne!(transition(Some(state), *event, tier), Some(EffectState::Committed));
            }
        }
    }
}
