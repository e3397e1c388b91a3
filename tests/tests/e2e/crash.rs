//! SIGKILL at every crash point of engine and worker, one at a time: the session still ends as it
//! must, in order, with stable keys, and with no more calls than the rules allow.
//!
//! Each point stands in one of the lists below; a new one that stands in none fails a test.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use serde_json::json;
use tonic::Code;
use undolog_proto::v1::FailedEffect;
use undolog_tests::pg::workspace_root;
use undolog_tests::run::{EngineOptions, Worker, WorkerOptions};
use undolog_tests::world::{Agent, Database, ToolSpec, reason_of};
use undolog_tests::{PrivateCluster, World, within};

use super::humans::swept_in;

/// Passed by every durable step; the number says by which one the process dies.
const STEPS: [&str; 2] = ["step.before_commit", "step.after_commit"];
/// Begin, four Intercepts, three Commits and the Fail.
const ENGINE_STEPS: u32 = 9;
/// Steps that the worker takes during the walk of three entries.
const WORKER_STEPS: u32 = 6;

/// Passed by the walk and by the sweeps of a run without other mishaps.
const WALK: [&str; 9] = [
    "sweep.after_slot_claim",
    "worker.after_attempt_written",
    "worker.after_call",
    "worker.after_claim",
    "worker.after_intent",
    "worker.after_settle_commit",
    "worker.before_ack",
    "worker.before_claim",
    "worker.before_settle_commit",
];

/// Passed by a sweep that finds something; each has its own run below.
const SWEEPS: [&str; 5] = [
    "sweep.after_reaper",
    "sweep.before_approval",
    "sweep.before_grants",
    "sweep.before_idle",
    "sweep.before_session",
];

/// Passed elsewhere: by registrations, notifications and probes.
const ELSEWHERE: [&str; 6] = [
    "notify.after_claim",
    "notify.after_send",
    "probe.after_ask",
    "probe.after_claim",
    "register_compensation.before_epoch",
    "register_tool.before_epoch",
];

/// Runs at the same time, each with an engine and a worker of its own.
const AT_ONCE: usize = 2;

const TOOLS: [&str; 3] = ["customer", "charge", "email"];
/// Recovery waits for leases and sweeps.
const LIMIT: Duration = Duration::from_secs(180);

/// The names in the sources, so that a new point is tested from its first day.
fn points_of(crates: &[&str]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for folder in crates {
        collect(&workspace_root().join(folder).join("src"), &mut names);
    }
    names
}

fn collect(folder: &std::path::Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            collect(&entry, names);
        } else if entry.extension().is_some_and(|ending| ending == "rs") {
            let text = std::fs::read_to_string(&entry).unwrap();
            let calls = text.split("crash_point!(\"").skip(1);
            names.extend(calls.filter_map(|rest| rest.split('"').next()).map(str::to_owned));
        }
    }
}

/// Repeats a call through an engine that dies and comes back. The same grant_token makes a lost
/// reply harmless.
async fn persist<T, F>(what: &str, mut call: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, tonic::Status>>,
{
    within(LIMIT, what, || {
        let call = call();
        async move {
            let retry = |status: &tonic::Status| {
                matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled)
            };
            match tokio::time::timeout(Duration::from_secs(30), call).await {
                Ok(Ok(value)) => Ok(value),
                Ok(Err(status)) if retry(&status) => Err(status.to_string()),
                Ok(Err(status)) => panic!("{what}: {status:?} {}", reason_of(&status)),
                Err(_) => Err("no answer".to_owned()),
            }
        }
    })
    .await
}

/// An agent's run that survives the engine's death at any moment.
async fn run(agent: &mut Agent) {
    for (n, tool) in TOOLS.iter().enumerate() {
        let args = json!({"n": n});
        let mut request = agent.request(tool, &args);
        request.grant_token = format!("token-{n}");
        let outcome = persist("intercept", || agent.ask(request.clone())).await;
        let granted = undolog_tests::world::grant(Ok(outcome));
        let result = agent.execute(tool, &granted.effect_id, &args).await;
        persist("commit", || agent.commit(&granted.effect_id, &result)).await;
    }
    let mut request = agent.request("charge", &json!({"n": 9}));
    request.grant_token = "token-9".to_owned();
    let outcome = persist("intercept", || agent.ask(request.clone())).await;
    let granted = undolog_tests::world::grant(Ok(outcome));
    persist("fail", || agent.fail(&granted.effect_id, FailedEffect::NotApplied)).await;
}

/// Starts a process again, without its crash point, whenever it has died.
async fn keep_alive(world: &mut World, url: &str) -> bool {
    let mut died = false;
    for index in 0..world.engines.len() {
        if world.engines[index].process.exited().is_some() {
            died = true;
            world.engines[index].process.disarm();
            world.engines[index].start_again().await;
        }
    }
    for index in 0..world.workers.len() {
        if world.workers[index].process.exited().is_some() {
            died = true;
            end_leases(world).await;
            world.workers[index] = Worker::start(url, WorkerOptions::default()).await;
        }
    }
    died
}

/// Lets the leases of a dead worker run out: what comes after them is tested here, not the half
/// minute until then.
async fn end_leases(world: &World) {
    sqlx::query(
        "UPDATE undolog_rollbacks SET lease_expires_at = clock_timestamp()
         WHERE lease_expires_at > clock_timestamp()",
    )
    .execute(world.pool())
    .await
    .expect("end the leases");
}

/// Which process dies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Victim {
    Engine,
    Worker,
}

fn armed(point: &str, nth: u32) -> Vec<(String, String)> {
    vec![("UNDOLOG_CRASH_AT".to_owned(), format!("{point}:{nth}"))]
}

/// A world whose victim dies at the point.
async fn doomed(victim: Victim, point: &str, nth: u32) -> World {
    let mut world = World::without_servers().await;
    world.add_engine(EngineOptions::default()).await;
    for tool in TOOLS {
        world.tool(ToolSpec::compensable(tool)).await;
    }
    let mut engine = EngineOptions::default();
    let mut worker = WorkerOptions::default();
    match victim {
        Victim::Engine => {
            world.engines.clear();
            engine.environment = armed(point, nth);
            world.add_engine(engine).await;
        }
        Victim::Worker => worker.environment = armed(point, nth),
    }
    world.workers.push(Worker::spawn(&world.database.url(), worker));
    world
}

/// Starts what has died again, without its crash point, while `work` goes on.
async fn attended<T>(world: &mut World, died: &mut bool, work: impl Future<Output = T>) -> T {
    let url = world.database.url();
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = tokio::time::sleep(Duration::from_millis(50)) => {
                *died |= keep_alive(world, &url).await;
            }
        }
    }
}

/// A whole run with one death; says whether the victim died.
async fn survives(victim: Victim, point: &str, nth: u32) -> bool {
    let mut world = doomed(victim, point, nth).await;
    let client = world.client("agent", "agent-1").await;
    let session = uuid::Uuid::new_v4();
    let begin =
        undolog_proto::v1::BeginRequest { session_id: session.to_string(), ..Default::default() };
    let mut agent = Agent::of_session(client.clone(), &world.witness, session);
    let mut died = false;
    let work = async {
        persist("begin", || async { client.sessions().begin(begin.clone()).await.map(drop) }).await;
        run(&mut agent).await;
        agent.wait_state("compensated", LIMIT).await;
    };
    attended(&mut world, &mut died, work).await;
    assert!(world.witness.objects().is_empty(), "{point}: {:?}", world.witness.objects());
    // One crash can cost one repeated call of one entry.
    let calls = world.witness.calls_to("/undo/").len();
    assert!((3..=4).contains(&calls), "{point}: {calls} compensation calls");
    world.rollback_check(session).await;
    eprintln!("{point}:{nth} {}", if died { "survived" } else { "not passed" });
    died
}

async fn all_survive(victim: Victim, cases: Vec<(&str, u32)>) -> usize {
    let runs = cases.iter().map(|(point, nth)| survives(victim, point, *nth));
    let died: Vec<bool> = stream::iter(runs).buffer_unordered(AT_ONCE).collect().await;
    died.into_iter().filter(|died| *died).count()
}

fn steps(point: &'static str, count: u32) -> Vec<(&'static str, u32)> {
    (1..=count).map(|nth| (point, nth)).collect()
}

#[test]
fn every_crash_point_stands_in_one_list() {
    let listed = [&STEPS[..], &WALK, &SWEEPS, &ELSEWHERE].concat();
    let listed: BTreeSet<String> = listed.iter().map(|&name| name.to_owned()).collect();
    assert_eq!(points_of(&["store", "engine", "workers"]), listed);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_engine_dies_before_each_commit_of_a_run() {
    let cases = steps(STEPS[0], ENGINE_STEPS);
    assert_eq!(all_survive(Victim::Engine, cases).await, ENGINE_STEPS as usize);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_engine_dies_after_each_commit_of_a_run() {
    let cases = steps(STEPS[1], ENGINE_STEPS);
    assert_eq!(all_survive(Victim::Engine, cases).await, ENGINE_STEPS as usize);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_dies_around_the_commits_of_a_walk() {
    let cases = [steps(STEPS[0], WORKER_STEPS), steps(STEPS[1], WORKER_STEPS)].concat();
    all_survive(Victim::Worker, cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_dies_at_each_point_of_a_walk() {
    let cases: Vec<_> = WALK.iter().map(|point| (*point, 1)).collect();
    assert_eq!(all_survive(Victim::Worker, cases).await, WALK.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_dies_at_later_entries_of_a_walk() {
    let points = WALK.iter().filter(|point| point.starts_with("worker."));
    let cases: Vec<_> = points.flat_map(|point| [(*point, 2), (*point, 3)]).collect();
    all_survive(Victim::Worker, cases).await;
}

/// A world whose clock moves and whose worker dies at a sweep's point.
async fn swept(point: &str) -> World {
    let server = PrivateCluster::start().await;
    let mut world = World::on(Database::Private(Box::new(server))).await;
    world.add_engine(EngineOptions::default()).await;
    for tool in TOOLS {
        world.tool(ToolSpec::compensable(tool)).await;
    }
    world.tool(ToolSpec::irreversible("wire")).await;
    let worker = WorkerOptions { environment: armed(point, 1), ..WorkerOptions::default() };
    world.workers.push(Worker::spawn(&world.database.url(), worker));
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_dies_while_it_sweeps_lost_grants_and_sessions() {
    for point in ["sweep.before_grants", "sweep.before_session"] {
        let mut world = swept(point).await;
        let mut agent = world.agent().await;
        agent.call("customer", &json!({"n": 1})).await;
        agent.grant("charge", &json!({"n": 2})).await;
        // Past the grant's lease; then past the session's, which a live grant would keep alive.
        let mut died = false;
        for _ in 0..4 {
            world.pass(Duration::from_secs(20 * 60)).await;
            let pool = world.pool().clone();
            let wait = async {
                for schedule in ["grants", "sessions"] {
                    swept_in(&pool, schedule).await;
                }
            };
            attended(&mut world, &mut died, wait).await;
        }
        let ended = agent.clone();
        attended(&mut world, &mut died, async move {
            ended.wait_state("halted", LIMIT).await;
        })
        .await;
        assert!(died, "{point} was not passed");
        assert_eq!(world.witness.calls_to("/undo/").len(), 1, "{point}");
        world.rollback_check(agent.session).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_dies_after_it_replaced_a_lost_ticket() {
    let mut world = doomed(Victim::Worker, "sweep.after_reaper", 1).await;
    world.workers.clear();
    let mut agent = world.agent().await;
    agent.call("customer", &json!({"n": 1})).await;
    agent.rollback().await.unwrap();
    sqlx::query("DELETE FROM apalis.jobs").execute(world.pool()).await.unwrap();
    let worker =
        WorkerOptions { environment: armed("sweep.after_reaper", 1), ..WorkerOptions::default() };
    world.workers.push(Worker::spawn(&world.database.url(), worker));
    let mut died = false;
    let ended = agent.clone();
    attended(&mut world, &mut died, async move {
        ended.wait_state("compensated", LIMIT).await;
    })
    .await;
    assert!(died, "the point was not passed");
    world.rollback_check(agent.session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_dies_while_it_ends_idle_sessions() {
    let mut world = swept("sweep.before_idle").await;
    let client = world.client("agent", "agent-1").await;
    let mut agent = Agent::of_session(client, &world.witness, uuid::Uuid::new_v4());
    agent.call("customer", &json!({"n": 1})).await;
    world.pass(Duration::from_secs(25 * 3600)).await;
    let mut died = false;
    let ended = agent.clone();
    attended(&mut world, &mut died, async move {
        ended.wait_state("completed", LIMIT).await;
    })
    .await;
    assert!(died, "the point was not passed");
    undolog_tests::check::fold_check(world.pool(), agent.session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_dies_while_it_sweeps_approvals() {
    let mut world = swept("sweep.before_approval").await;
    let mut agent = world.agent().await;
    let request = agent.request("wire", &json!({"n": 1}));
    agent.ask(request).await.unwrap();
    world.pass(Duration::from_secs(3700)).await;
    let mut died = false;
    let ended = agent.clone();
    attended(&mut world, &mut died, async move {
        ended.wait_state("halted", LIMIT).await;
    })
    .await;
    assert!(died, "the point was not passed");
    undolog_tests::check::fold_check(world.pool(), agent.session).await;
}
