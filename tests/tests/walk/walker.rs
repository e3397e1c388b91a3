//! A worker that is driven by hand: it claims, takes steps, and answers calls as a test wants.

use sqlx::PgPool;
use undolog_core::{fn_body::RenderedCall, retry::CallOutcome};
use undolog_store::{
    StepError, Store, StoreOptions,
    sessions::RollbackScope,
    walk::{self, Advance, Claim, Next, Outcome, Place, PreparedCall, Report},
};
use uuid::Uuid;

use crate::bench::Bench;

/// The walker.
pub(crate) struct Walker {
    pub(crate) store: Store,
    pub(crate) claim: Claim,
    pub(crate) place: Place,
}

/// Connects as a worker.
pub(crate) async fn worker_store(bench: &Bench) -> Store {
    let url = bench.db.url().to_owned().into();
    let options = StoreOptions::new(url, Some("undolog_worker"), "walk");
    Store::connect(&options).await.expect("connect as a worker")
}

/// The session's newest rollback.
pub(crate) async fn rollback_id(bench: &Bench) -> Uuid {
    sqlx::query_scalar(
        "SELECT rollback_id FROM undolog_rollbacks WHERE session_id = $1 \
         ORDER BY created_at DESC LIMIT 1",
    )
    .bind(bench.session)
    .fetch_one(bench.db.pool())
    .await
    .expect("a rollback")
}

/// Claims the session's rollback, if that is possible now.
pub(crate) async fn try_claim(bench: &Bench, store: &Store, worker: &str) -> Option<Claim> {
    let id = rollback_id(bench).await;
    walk::claim(store, bench.org.id, id, worker).await.expect("claim")
}

impl Walker {
    /// Claims the session's rollback.
    pub(crate) async fn claim(bench: &Bench) -> Self {
        Self::claim_as(bench, "worker-1").await
    }

    pub(crate) async fn claim_as(bench: &Bench, worker: &str) -> Self {
        let store = worker_store(bench).await;
        let claim = try_claim(bench, &store, worker).await.expect("the rollback is due and free");
        Self { store, claim, place: Place::Worker }
    }

    /// Starts the whole rollback and claims it.
    pub(crate) async fn start(bench: &Bench) -> Self {
        bench.rollback(RollbackScope::Whole).await.expect("rollback");
        Self::claim(bench).await
    }

    pub(crate) async fn try_step(&self, report: Option<Report>) -> Result<Next, StepError> {
        let step = Advance {
            claim: self.claim.clone(),
            report,
            place: self.place,
            may_go_on: true,
            jitter_percent: 0,
        };
        self.store.run(step).await
    }

    pub(crate) async fn step(&self, report: Option<Report>) -> Next {
        self.try_step(report).await.expect("a step")
    }

    /// The next call; anything else fails the test.
    #[track_caller]
    pub(crate) fn call(next: Next) -> PreparedCall {
        match next {
            Next::Call(call) => *call,
            other => panic!("no call: {other:?}"),
        }
    }

    /// Answers every call with success until the walk ends; the calls' URLs and bodies in order.
    pub(crate) async fn succeed(&self) -> Vec<(Uuid, String)> {
        let mut made = Vec::new();
        let mut report = None;
        loop {
            match self.step(report.take()).await {
                Next::Call(call) => {
                    made.push((call.effect_id, body(&call.call)));
                    report = Some(report_of(&call, CallOutcome::Done));
                }
                Next::Again => {}
                _ => return made,
            }
        }
    }
}

/// A report about a call.
pub(crate) fn report_of(call: &PreparedCall, outcome: CallOutcome) -> Report {
    report_about(call.undo_attempt_id, call.undo_id, Outcome::Ended(outcome))
}

pub(crate) fn report_about(undo_attempt_id: Uuid, undo_id: Uuid, outcome: Outcome) -> Report {
    let failed = outcome != Outcome::Ended(CallOutcome::Done);
    Report {
        undo_attempt_id,
        undo_id,
        outcome,
        status: Some(if failed { 500 } else { 200 }),
        error: failed.then(|| "it \0 broke".to_owned()),
        response: b"raw\0\xff".to_vec(),
        response_truncated: false,
        retry_after_ms: None,
        may_have_run: !failed,
    }
}

pub(crate) fn body(call: &RenderedCall) -> String {
    call.body.as_ref().map(undolog_core::json::canonical).unwrap_or_default()
}

pub(crate) async fn run(pool: &PgPool, sql: &str) {
    sqlx::raw_sql(sql).execute(pool).await.expect(sql);
}

/// The claim's worker is gone: its lease ends.
pub(crate) async fn lease_over(bench: &Bench) {
    let sql = "UPDATE undolog_rollbacks SET lease_expires_at = now() - interval '1 second' \
        WHERE lease_expires_at IS NOT NULL";
    run(bench.db.pool(), sql).await;
}

/// Whatever the walk waits for is over.
pub(crate) async fn time_passes(bench: &Bench) {
    run(
        bench.db.pool(),
        "UPDATE undolog_rollbacks SET due_at = least(due_at, now() - interval '1 second'); \
         UPDATE undolog_undo_stack SET next_try_at = now() - interval '1 second' \
         WHERE next_try_at IS NOT NULL",
    )
    .await;
}

/// One text about the session.
pub(crate) async fn letters(bench: &Bench) -> Vec<(String, bool)> {
    sqlx::query_as(
        "SELECT reason, closed_at IS NULL FROM undolog_dead_letters WHERE session_id = $1 \
         ORDER BY created_at, dead_letter_id",
    )
    .bind(bench.session)
    .fetch_all(bench.db.pool())
    .await
    .expect("dead letters")
}

/// The states of the entries, from the lowest position up.
pub(crate) async fn entries(bench: &Bench) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT state || COALESCE(':' || skip_reason, '') FROM undolog_undo_stack \
         WHERE session_id = $1 ORDER BY stack_position",
    )
    .bind(bench.session)
    .fetch_all(bench.db.pool())
    .await
    .expect("entries")
}

/// The outcomes of all calls, in the order in which they began.
pub(crate) async fn outcomes(bench: &Bench) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT COALESCE(outcome, '-') FROM undolog_undo_attempts WHERE session_id = $1 \
         ORDER BY started_at, undo_attempt_id",
    )
    .bind(bench.session)
    .fetch_all(bench.db.pool())
    .await
    .expect("attempts")
}

/// Commits `count` payments, steps 1 to `count`.
pub(crate) async fn pay(bench: &Bench, count: u32) -> Vec<Uuid> {
    let mut effects = Vec::new();
    for step in 1..=count {
        let effect = bench.grant(step, "pay").await;
        bench
            .commit(effect, &serde_json::json!({"id": format!("p-{step}")}))
            .await
            .expect("commit");
        effects.push(effect);
    }
    effects
}
