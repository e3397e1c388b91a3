//! Calls whose worker died: they are made again within their organisation's share, however long
//! other calls take, and what ends a process ends no other call with it.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use serde_json::json;
use undolog_core::Tier;
use undolog_store::{sessions::RollbackScope, walk::Next};
use undolog_tests::{
    eventually,
    run::{Worker, WorkerOptions},
    within,
    witness::{Act, Script, Witness},
    world::Org,
};
use undolog_workers::OneCall;
use uuid::Uuid;

use crate::{
    bench::Bench,
    process::Running,
    walker::{Walker, lease_over, letters, outcomes, pay, run},
};

const LIMIT: Duration = Duration::from_secs(90);

/// Another organisation, whose payments are undone at this route.
async fn organisation(bench: &mut Bench, witness: &Witness, slug: &str, route: &str) {
    bench.org = Org::create(bench.db.pool(), slug).await;
    undone_at(bench, witness, route).await;
    bench.tool("pay", Tier::Compensable, |tool| tool.compensation_ref = "undo_pay".into()).await;
}

async fn undone_at(bench: &Bench, witness: &Witness, route: &str) {
    let body = json!({
        "endpoint": witness.url(route), "arg_mapping": {"id": "{result.id}"},
        "done_statuses": [404], "timeout_ms": 600_000,
    });
    bench.compensation("undo_pay", body).await;
}

/// A session with one payment whose rollback is due.
async fn due(bench: &mut Bench) -> Uuid {
    bench.session = Uuid::new_v4();
    pay(bench, 1).await;
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    let soon = "UPDATE undolog_undo_stack SET retry_backoff_ms = 10";
    run(bench.db.pool(), soon).await;
    bench.session
}

/// A worker begins the session's call and dies in it.
async fn interrupted(bench: &Bench) {
    let walker = Walker::claim(bench).await;
    let next = walker.step(None).await;
    assert!(matches!(next, Next::Call(_)), "{next:?}");
}

async fn state_is(bench: &Bench, session: Uuid, state: &str) {
    within(LIMIT, &format!("session {session} is {state}"), || async {
        let sql = "SELECT state::text FROM undolog_sessions WHERE session_id = $1";
        let now: String = sqlx::query_scalar(sql)
            .bind(session)
            .fetch_one(bench.db.pool())
            .await
            .expect("a session");
        if now == state { Ok(()) } else { Err(now) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_entry_is_called_however_long_other_calls_take() {
    let mut bench = Bench::new().await;
    let witness = Witness::start().await;
    undone_at(&bench, &witness, "/undo/a").await;
    let gate = witness.hold("/undo/a");
    let mut slow = Vec::new();
    for _ in 0..6 {
        slow.push(due(&mut bench).await);
    }
    let worker = Running::start(&bench, |options| options.concurrency = 2).await;
    witness.wait_for("/undo/a", 2, LIMIT).await;

    organisation(&mut bench, &witness, "other", "/undo/b").await;
    let session = due(&mut bench).await;
    // The worker may have been faster; then its first call has been made already.
    let store = crate::walker::worker_store(&bench).await;
    if let Some(claim) = crate::walker::try_claim(&bench, &store, "gone").await {
        let place = undolog_store::walk::Place::Worker;
        let walker = Walker { store, claim, place };
        let next = walker.step(None).await;
        assert!(matches!(next, Next::Call(_)), "{next:?}");
        run(
            bench.db.pool(),
            "UPDATE undolog_rollbacks SET lease_expires_at = now() WHERE lease_owner = 'gone'",
        )
        .await;
    }
    witness.wait_for("/undo/b", 1, LIMIT).await;
    state_is(&bench, session, "compensated").await;
    assert!(witness.calls_to("/undo/a").len() <= 2, "the others hold every other place");
    gate.open();
    for session in slow {
        state_is(&bench, session, "compensated").await;
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_with_32_calls_delays_every_organisation_by_its_own_calls_only() {
    let slow_ms: u64 =
        std::env::var("UNDOLOG_TEST_SLOW_MS").ok().and_then(|ms| ms.parse().ok()).unwrap_or(1_500);
    let mut bench = Bench::new().await;
    let witness = Witness::start().await;
    undone_at(&bench, &witness, "/undo/many").await;
    let mut sessions = Vec::new();
    for _ in 0..25 {
        sessions.push(due(&mut bench).await);
    }
    for n in 0..7 {
        organisation(&mut bench, &witness, &format!("o-{n}"), &format!("/undo/one-{n}")).await;
        sessions.push(due(&mut bench).await);
    }
    let gate = witness.hold("/undo/");
    let options = || WorkerOptions::default();
    let mut first = Worker::start(bench.db.url(), options()).await;
    witness.wait_for("/undo/", 32, LIMIT).await;
    first.process.kill9();
    drop(gate);
    witness.behave();
    witness.script(Script::always("/undo/", Act::Delay(Duration::from_millis(slow_ms))));
    let before = witness.calls_to("/undo/").len();
    lease_over(&bench).await;
    let _second = Worker::start(bench.db.url(), options()).await;
    for session in sessions {
        state_is(&bench, session, "compensated").await;
    }
    let after = witness.calls_to("/undo/").split_off(before);
    assert_eq!(after.len(), 32, "each once more");
    for n in 0..7 {
        let route = format!("/undo/one-{n}");
        let place = after.iter().position(|call| call.path.starts_with(&route));
        let place = place.expect("its call");
        assert!(place < 16, "{route} was call {place} of 32");
    }
    let letters: i64 = bench.count("undolog_dead_letters").await;
    assert_eq!(letters, 0);
}

/// A process that says that it makes a call, and dies.
fn dies_in_the_call() -> OneCall {
    let script = r#"read -r job; echo '"Begun"'; kill -KILL $$"#;
    let arguments: Vec<OsString> = vec!["-c".into(), script.into()];
    OneCall { program: PathBuf::from("/bin/sh"), arguments }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_ends_its_process_ends_nothing_else() {
    let mut bench = Bench::new().await;
    let witness = Witness::start().await;
    undone_at(&bench, &witness, "/undo/poison").await;
    let poison = due(&mut bench).await;
    interrupted(&bench).await;
    lease_over(&bench).await;
    let worker = Running::start(&bench, |options| options.one_call = dies_in_the_call()).await;
    state_is(&bench, poison, "halted").await;
    assert_eq!(letters(&bench).await, [("POISON".to_owned(), true)]);
    assert_eq!(outcomes(&bench).await, ["interrupted"; 4]);
    let why = "SELECT detail FROM undolog_dead_letters WHERE session_id = $1";
    let why = bench.text(why).await;
    assert!(why.contains("3 processes in a row") && why.contains("signal: 9"), "{why}");
    organisation(&mut bench, &witness, "other", "/undo/other").await;
    let session = due(&mut bench).await;
    state_is(&bench, session, "compensated").await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_a_process_of_its_own_waits_and_is_not_counted() {
    let mut bench = Bench::new().await;
    let witness = Witness::start().await;
    undone_at(&bench, &witness, "/undo/one").await;
    due(&mut bench).await;
    interrupted(&bench).await;
    lease_over(&bench).await;
    let worker = Running::start(&bench, |options| {
        options.one_call.program = PathBuf::from("/no/such/program");
    })
    .await;
    eventually("the call is put off", || async {
        let now = outcomes(&bench).await;
        if now == ["interrupted", "deferred"] { Ok(()) } else { Err(now) }
    })
    .await;
    worker.stop().await;
    let error = "SELECT last_error FROM undolog_undo_stack WHERE session_id = $1";
    let error = bench.text(error).await;
    assert!(error.contains("no process of its own was started: /no/such/program"), "{error}");
    assert_eq!(letters(&bench).await, []);
    assert!(witness.calls_to("/undo/").is_empty(), "nothing was sent");
}

/// The environment of the process that this one has started to make a call.
fn environment_of_child(worker: u32) -> Option<Vec<String>> {
    let folders = std::fs::read_dir("/proc").expect("the processes");
    for folder in folders.filter_map(Result::ok) {
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).ok();
        let Some(stat) = read("stat") else { continue };
        // What follows the name in parentheses: its state, then its parent.
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        let is_call = read("cmdline").is_some_and(|line| line.contains("compensation-call"));
        if is_call && parent == Some(worker.to_string().as_str()) {
            let text = read("environ")?;
            return Some(text.split('\0').filter(|v| !v.is_empty()).map(str::to_owned).collect());
        }
    }
    None
}

#[tokio::test(flavor = "multi_thread")]
async fn the_process_of_one_call_inherits_that_calls_secrets_and_nothing_else() {
    let mut bench = Bench::new().await;
    let witness = Witness::start().await;
    let body = json!({
        "endpoint": witness.url("/undo/held"), "arg_mapping": {"id": "{result.id}"},
        "headers": {"authorization": "Bearer {secret:TOKEN}", "x-shared": "{secret:SHARED}"},
        "done_statuses": [404], "timeout_ms": 600_000,
    });
    bench.compensation("undo_pay", body).await;
    due(&mut bench).await;
    interrupted(&bench).await;
    lease_over(&bench).await;
    let gate = witness.hold("/undo/held");
    let own = format!("UNDOLOG_SECRET_{}__TOKEN", bench.org.slug.to_uppercase().replace('-', "_"));
    let set = [
        (own.as_str(), "own-token"),
        ("UNDOLOG_SHARED_SECRET_SHARED", "shared-value"),
        ("UNDOLOG_SHARED_SECRET_OTHER", "not-named"),
        ("UNDOLOG_SECRET_OTHER__TOKEN", "not-ours"),
        ("UNDOLOG_API_KEY", "ulk_not_for_calls"),
    ];
    let environment = set.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let options = WorkerOptions { environment, ..WorkerOptions::default() };
    let worker = Worker::start(bench.db.url(), options).await;
    witness.wait_for("/undo/held", 1, LIMIT).await;
    let found = environment_of_child(worker.process.id()).expect("the process of the call");
    let allowed = ["LD_LIBRARY_PATH=", "LOCALDOMAIN=", "RES_OPTIONS=", "UNDOLOG_GUARDS_OFF="];
    let mut secrets: Vec<&str> = found
        .iter()
        .map(String::as_str)
        .filter(|variable| !allowed.iter().any(|name| variable.starts_with(name)))
        .collect();
    secrets.sort_unstable();
    let own = format!("{own}=own-token");
    assert_eq!(secrets, [own.as_str(), "UNDOLOG_SHARED_SECRET_SHARED=shared-value"]);
    let call = witness.calls_to("/undo/held").remove(0);
    assert_eq!(call.header("authorization"), Some("Bearer own-token"));
    gate.open();
    let session = bench.session;
    state_is(&bench, session, "compensated").await;
}
