//! The worker process in this one, with a real endpoint.

use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use undolog_store::{StoreOptions, sessions::RollbackScope};
use undolog_tests::{
    eventually,
    run::binary,
    within,
    witness::{Act, Script, Witness},
};
use undolog_workers::{
    WorkerOptions, Workers,
    egress::{AllowList, EgressOptions},
};

use crate::{
    bench::Bench,
    walker::{entries, letters, outcomes, pay, run},
};

pub(crate) struct Running {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    pub(crate) async fn start(bench: &Bench, change: impl FnOnce(&mut WorkerOptions)) -> Self {
        let url = bench.db.url().to_owned().into();
        let mut options =
            WorkerOptions::new(StoreOptions::new(url, Some("undolog_worker"), "worker"));
        options.egress = EgressOptions { allow: AllowList::loopback(), ..EgressOptions::default() };
        options.one_call.program = binary();
        options.http_listen = Some("127.0.0.1:0".parse().expect("an address"));
        change(&mut options);
        let workers = Workers::connect(options).await.expect("connect");
        assert!(workers.http_address().is_some());
        let stop = CancellationToken::new();
        let token = stop.clone();
        let task = tokio::spawn(async move { workers.serve(token).await.expect("serve") });
        Self { stop, task }
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.expect("no panic");
    }
}

async fn session_is(bench: &Bench, state: &str) {
    within(Duration::from_secs(30), &format!("the session is {state}"), || async {
        let now = bench.session_state().await;
        if now == state { Ok(()) } else { Err(now) }
    })
    .await;
}

async fn endpoint(bench: &Bench, witness: &Witness, more: serde_json::Value) {
    let mut body = json!({
        "endpoint": witness.url("/undo/payment"), "arg_mapping": {"id": "{result.id}"},
        "done_statuses": [404],
    });
    for (key, value) in more.as_object().expect("an object") {
        body[key] = value.clone();
    }
    bench.compensation("undo_pay", body).await;
}

#[tokio::test]
async fn a_session_is_undone_by_real_calls_in_order() {
    let bench = Bench::new().await;
    let witness = Witness::start().await;
    endpoint(&bench, &witness, json!({})).await;
    let worker = Running::start(&bench, |_| {}).await;
    pay(&bench, 5).await;
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    session_is(&bench, "compensated").await;
    let ids: Vec<String> = witness
        .calls_to("/undo/")
        .iter()
        .map(|call| call.json()["id"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(ids, ["p-5", "p-4", "p-3", "p-2", "p-1"]);
    worker.stop().await;
    bench.check().await;
}

#[tokio::test]
async fn every_bad_endpoint_ends_in_a_dead_letter_with_its_reason() {
    for (act, reason, calls) in [
        (Act::Status(400), "PERMANENT", 1),
        (Act::Redirect("http://127.0.0.1:1/".to_owned()), "PERMANENT", 1),
        (Act::Endless, "PERMANENT", 1),
        (Act::Status(500), "EXHAUSTED", 3),
        (Act::Close, "EXHAUSTED", 3),
        (Act::Hang, "EXHAUSTED", 3),
    ] {
        let bench = Bench::new().await;
        let witness = Witness::start().await;
        endpoint(&bench, &witness, json!({"timeout_ms": 300})).await;
        witness.script(Script::always("/undo/", act.clone()));
        pay(&bench, 1).await;
        run(
            bench.db.pool(),
            "UPDATE undolog_undo_stack SET max_retries = 2, retry_backoff_ms = 10",
        )
        .await;
        bench.rollback(RollbackScope::Whole).await.expect("rollback");
        let worker = Running::start(&bench, |_| {}).await;
        session_is(&bench, "halted").await;
        assert_eq!(letters(&bench).await, [(reason.to_owned(), true)], "{act:?}");
        assert_eq!(witness.calls_to("/undo/").len(), calls, "{act:?}");
        worker.stop().await;
        bench.check().await;
    }
}

#[tokio::test]
async fn a_stopping_worker_hands_a_call_back_and_the_next_one_makes_it() {
    let bench = Bench::new().await;
    let witness = Witness::start().await;
    endpoint(&bench, &witness, json!({"timeout_ms": 60_000})).await;
    let gate = witness.hold("/undo/");
    pay(&bench, 2).await;
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    let worker = Running::start(&bench, |options| options.grace_ms = 6_000).await;
    witness.wait_for("/undo/", 1, Duration::from_secs(20)).await;
    worker.stop().await;
    assert_eq!(outcomes(&bench).await, ["handed_back"]);
    let lease = "SELECT (lease_owner IS NULL)::text FROM undolog_rollbacks WHERE session_id = $1";
    assert_eq!(bench.text(lease).await, "true", "its lease is released");
    gate.open();
    let next = Running::start(&bench, |_| {}).await;
    session_is(&bench, "compensated").await;
    assert_eq!(entries(&bench).await, ["compensated", "compensated"]);
    next.stop().await;
    bench.check().await;
}

#[tokio::test]
async fn foreign_and_undecodable_tickets_do_not_stop_the_queue() {
    let bench = Bench::new().await;
    let witness = Witness::start().await;
    endpoint(&bench, &witness, json!({})).await;
    run(
        bench.db.pool(),
        "INSERT INTO apalis.jobs (job, id, job_type, run_at) VALUES \
           ('\"text\"', '01ARZ3NDEKTSV4RRFFQ69G5FAV', 'undolog.rollback', \
            now() - interval '1 minute'), \
           ('{\"kind\": \"rollback\", \"subject\": \"x\"}', '01ARZ3NDEKTSV4RRFFQ69G5FAW', \
            'undolog.rollback', now() - interval '1 minute'), \
           ('{}', 'no-ulid', 'undolog.rollback', now() - interval '1 minute')",
    )
    .await;
    let worker = Running::start(&bench, |_| {}).await;
    pay(&bench, 1).await;
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    session_is(&bench, "compensated").await;
    worker.stop().await;
}

#[tokio::test]
async fn a_notification_wakes_a_worker_that_hardly_polls() {
    let bench = Bench::new().await;
    let witness = Witness::start().await;
    endpoint(&bench, &witness, json!({})).await;
    let worker = Running::start(&bench, |options| options.poll_interval_ms = 600_000).await;
    eventually("the worker listens", || async {
        let listening: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' \
             AND datname = current_database()",
        )
        .fetch_one(bench.db.pool())
        .await
        .expect("count");
        if listening > 0 { Ok(()) } else { Err(listening) }
    })
    .await;
    pay(&bench, 1).await;
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    session_is(&bench, "compensated").await;
    worker.stop().await;
}

#[tokio::test]
async fn replicas_share_the_work_and_each_call_is_made_once() {
    let mut bench = Bench::new().await;
    let witness = Witness::start().await;
    endpoint(&bench, &witness, json!({})).await;
    let mut sessions = Vec::new();
    for _ in 0..12 {
        bench.session = uuid::Uuid::new_v4();
        pay(&bench, 4).await;
        bench.rollback(RollbackScope::Whole).await.expect("rollback");
        sessions.push(bench.session);
    }
    let mut workers = Vec::new();
    for _ in 0..3 {
        workers.push(Running::start(&bench, |options| options.slice_calls = 2).await);
    }
    eventually("all sessions are compensated", || async {
        let left: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM undolog_sessions WHERE state <> 'compensated'",
        )
        .fetch_one(bench.db.pool())
        .await
        .expect("count");
        if left == 0 { Ok(()) } else { Err(left) }
    })
    .await;
    assert_eq!(witness.calls_to("/undo/").len(), 48, "each once");
    for worker in workers {
        worker.stop().await;
    }
    for session in sessions {
        bench.session = session;
        bench.check().await;
    }
}
