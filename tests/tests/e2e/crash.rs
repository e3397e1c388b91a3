//! SIGKILL at every crash point of engine and worker, one at a time: the session still ends as it
//! must, in order, with stable keys, and with no more calls than the rules allow.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use tonic::Code;
use undolog_proto::v1::FailedEffect;
use undolog_tests::pg::workspace_root;
use undolog_tests::run::{EngineOptions, WorkerOptions};
use undolog_tests::world::{Agent, ToolSpec, reason_of};
use undolog_tests::{World, within};

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
            world.workers[index] =
                undolog_tests::run::Worker::start(url, WorkerOptions::default()).await;
        }
    }
    died
}

async fn survives(point: &str, nth: u32) -> bool {
    let mut world = World::without_servers().await;
    world.add_engine(EngineOptions::default()).await;
    for tool in TOOLS {
        world.tool(ToolSpec::compensable(tool)).await;
    }
    let armed = vec![("UNDOLOG_CRASH_AT".to_owned(), format!("{point}:{nth}"))];
    world.engines.clear();
    let engine = EngineOptions { environment: armed.clone(), ..EngineOptions::default() };
    world.add_engine(engine).await;
    let worker = WorkerOptions { environment: armed, ..WorkerOptions::default() };
    world.workers.push(undolog_tests::run::Worker::spawn(&world.database.url(), worker));

    let client = world.client("agent", "agent-1").await;
    let url = world.database.url();
    let witness_url = world.witness.url("");
    let _ = witness_url;
    let mut died = false;
    let session = uuid::Uuid::new_v4();
    let begin =
        undolog_proto::v1::BeginRequest { session_id: session.to_string(), ..Default::default() };
    let mut agent = Agent::of_session(client.clone(), &world.witness, session);
    let work = async {
        persist("begin", || async { client.sessions().begin(begin.clone()).await.map(|_| ()) })
            .await;
        run(&mut agent).await;
        agent
    };
    tokio::pin!(work);
    let agent = loop {
        tokio::select! {
            agent = &mut work => break agent,
            () = tokio::time::sleep(Duration::from_millis(50)) => {
                died |= keep_alive(&mut world, &url).await;
            }
        }
    };
    let ended = agent.wait_state("compensated", LIMIT);
    tokio::pin!(ended);
    loop {
        tokio::select! {
            _ = &mut ended => break,
            () = tokio::time::sleep(Duration::from_millis(50)) => {
                died |= keep_alive(&mut world, &url).await;
            }
        }
    }
    assert!(world.witness.objects().is_empty(), "{point}: {:?}", world.witness.objects());
    // One crash can cost one repeated call of one entry.
    let calls = world.witness.calls_to("/undo/").len();
    assert!((3..=4).contains(&calls), "{point}: {calls} compensation calls");
    world.rollback_check(session).await;
    died
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_survives_a_kill_at_every_point() {
    let points = points_of(&["store", "engine", "workers"]);
    assert!(points.len() > 5, "{points:?}");
    let mut never_reached = Vec::new();
    for point in &points {
        println!("crash point {point}");
        if !survives(point, 1).await {
            never_reached.push(point.clone());
        }
    }
    assert!(never_reached.is_empty(), "not reached by this run: {never_reached:?}");
}
