//! A crowd of callers waits on one engine, and costs next to nothing.

use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use undolog_proto::v1::intercept_response::Outcome;
use undolog_proto::v1::{InterceptRequest, WatchApprovalRequest};
use undolog_tests::world::{Agent, Client, reason_of};
use undolog_tests::{World, eventually, size, within};

use crate::approvals::waiting;
use crate::humans::{approve, asked, count, reject, revoke, tools, waits, wire};

/// Those who wait; `UNDOLOG_TEST_WAITERS` says otherwise.
fn waiters() -> usize {
    size("UNDOLOG_TEST_WAITERS", 200)
}

/// What all of them together may cost in memory, also when there are a thousand.
const MEMORY_KIB_MAX: u64 = 20 * 1024;

/// What every update of a request said, until the last one.
async fn watched(client: &Client, approval: &str) -> Vec<String> {
    let request = WatchApprovalRequest {
        approval_id: approval.to_owned(),
        ..WatchApprovalRequest::default()
    };
    let mut stream = client.operator().watch_approval(request).await.expect("watch").into_inner();
    let mut states = Vec::new();
    while let Some(update) = stream.message().await.expect("an update") {
        let approval = update.approval.expect("an approval");
        states.push(format!("{}/{}", approval.state, approval.effect_state));
        if update.is_final {
            assert_eq!(stream.message().await.expect("the end"), None);
            return states;
        }
    }
    panic!("the stream ended after {states:?}")
}

fn memory_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_that_waits_holds_no_connection_and_all_hear_the_decision() {
    let figures = a_crowd_waits(waiters() / 2).await;
    println!("{figures}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_waits_with_one_call_and_one_of_them_runs_it() {
    let figures = a_crowd_waits(waiters()).await;
    println!("{figures}");
}

/// So many wait with their call, and the others watch its approval. Answers what it cost.
async fn a_crowd_waits(callers: usize) -> String {
    let watchers = waiters() - callers;
    let world = World::start().await;
    tools(&world).await;
    let boss = world.client("approver", "boss").await;
    let key = world.org.key(world.pool(), "agent", "agent-1").await;
    let url = world.engines[0].grpc_url();
    // A connection has room for 1,024 calls at once.
    let clients: Vec<Client> = (0..4).map(|_| Client::new(&url, Some(&key))).collect();
    let mut agent = Agent::begin(clients[0].clone(), &world.witness).await;
    let request = InterceptRequest { wait_ms: 25_000, ..agent.request("wire", &wire(1)) };
    let asked = InterceptRequest { wait_ms: 0, ..request.clone() };
    let approval = waits(agent.ask(asked).await).approval_id;
    for client in &clients {
        waits(
            of(client, &world, &agent)
                .ask(InterceptRequest { wait_ms: 1, ..request.clone() })
                .await,
        );
    }
    let pid = world.engines[0].process.id();
    let before = memory_kib(pid);
    let began = std::time::Instant::now();

    let watching = (0..watchers).map(|n| {
        let (client, approval) = (clients[n % clients.len()].clone(), approval.clone());
        tokio::spawn(async move { watched(&client, &approval).await })
    });
    let watching: Vec<_> = watching.collect();
    let calling = (0..callers).map(|n| {
        let agent = of(&clients[n % clients.len()], &world, &agent);
        let request = request.clone();
        tokio::spawn(asks(agent, request))
    });
    let calling: Vec<_> = calling.collect();
    waiting(&world, watchers + callers).await;
    let all_wait = began.elapsed();
    let after = memory_kib(pid);
    assert!(after <= before + MEMORY_KIB_MAX, "{before} KiB before, {after} KiB now");
    let connections = idle_connections(&world).await;
    // The pool's eight, one that listens, one for ticks, two for reports and keys.
    assert!(connections <= 12, "{connections} connections");

    let began = std::time::Instant::now();
    approve(&boss, &approval).await.unwrap();
    let mut heard = std::collections::BTreeMap::<String, usize>::new();
    for answer in join_all(calling).await {
        *heard.entry(answer.expect("no panic")).or_default() += 1;
    }
    let all_answered = began.elapsed();
    let expected = [("executed".to_owned(), 1), ("replayed".to_owned(), callers - 1)];
    assert_eq!(heard, expected.into());
    let (told, steps) = replays(&world).await;
    assert_eq!(told, i64::try_from(callers - 1).unwrap(), "each is counted");
    assert!(steps <= told / 5, "{steps} steps for {told} callers that were woken together");
    for states in join_all(watching).await {
        let states = states.expect("no panic");
        assert_eq!(states[0], "pending/pending");
        let last = states.last().unwrap();
        assert!(last.starts_with("approved/"), "{states:?}");
    }
    waiting(&world, 0).await;
    format!(
        "{watchers} watchers and {callers} callers: all wait after {all_wait:?}; {before} KiB \
         before, \
         {after} KiB while they wait; {connections} connections; after the decision all calls are \
         answered in {all_answered:?}, {told} replays in {steps} steps"
    )
}

/// Asks, and reports what was granted. A call waits for 25 s at the most, and the machine may be
/// too busy for the whole crowd to come in that time: who has not heard yet asks again, as clients
/// do.
async fn asks(agent: Agent, request: InterceptRequest) -> String {
    loop {
        match agent.ask(request.clone()).await {
            Ok(Outcome::Execute(granted)) => {
                agent.commit(&granted.effect_id, &json!({"sent": true})).await.unwrap();
                return "executed".to_owned();
            }
            Ok(Outcome::Replay(_)) => return "replayed".to_owned(),
            Ok(Outcome::AwaitingApproval(_)) => {}
            Err(refused) if reason_of(&refused) == "IN_PROGRESS" => {}
            Err(refused) => return format!("{refused:?}"),
        }
    }
}

/// The engine's connections: the pool's eight and the one that listens, none in a transaction.
async fn idle_connections(world: &World) -> i64 {
    let held = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
        AND application_name LIKE '%engine%'";
    eventually("the engine's connections are idle", || async {
        let open = count(world, &format!("{held} AND state <> 'idle'")).await;
        if open <= 1 { Ok(()) } else { Err(open) }
    })
    .await;
    count(world, held).await
}

/// How often the one result was served, and by how many steps.
async fn replays(world: &World) -> (i64, i64) {
    sqlx::query_as(
        "SELECT (SELECT sum(replay_count) FROM undolog_effect_log)::int8, \
           (SELECT count(*) FROM undolog_effect_events WHERE kind = 'replayed')",
    )
    .fetch_one(world.pool())
    .await
    .expect("read the replays")
}

fn of(client: &Client, world: &World, agent: &Agent) -> Agent {
    Agent::of_session(client.clone(), &world.witness, agent.session)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_sees_each_end_of_a_request() {
    let world = World::start().await;
    tools(&world).await;
    let boss = world.client("approver", "boss").await;
    let mut agent = world.agent().await;
    let mine = agent.client.clone();

    let revoked = asked(&mut agent, &wire(1)).await.approval_id;
    let watcher = spawn_watch(&mine, &revoked);
    waiting(&world, 1).await;
    approve(&boss, &revoked).await.unwrap();
    revoke(&boss, &revoked).await.unwrap();
    let states = watcher.await.unwrap();
    assert_eq!(states.last().unwrap(), "approved/rejected", "{states:?}");
    // What is over is told at once.
    assert_eq!(watched(&boss, &revoked).await, ["approved/rejected"]);

    let voided = asked(&mut agent, &wire(2)).await.approval_id;
    let watcher = spawn_watch(&mine, &voided);
    waiting(&world, 1).await;
    agent.rollback().await.unwrap();
    assert_eq!(watcher.await.unwrap(), ["pending/pending", "rejected/rejected"]);

    let mut agent = Agent::begin(mine.clone(), &world.witness).await;
    let rejected = asked(&mut agent, &wire(3)).await.approval_id;
    let watcher = spawn_watch(&mine, &rejected);
    waiting(&world, 1).await;
    reject(&boss, &rejected).await.unwrap();
    assert_eq!(watcher.await.unwrap(), ["pending/pending", "rejected/rejected"]);

    let stranger = world.client("agent", "agent-2").await;
    let request = WatchApprovalRequest { approval_id: rejected, ..WatchApprovalRequest::default() };
    let refused = stranger.operator().watch_approval(request).await.unwrap_err();
    assert_eq!(reason_of(&refused), "APPROVAL_NOT_FOUND");
}

fn spawn_watch(client: &Client, approval: &str) -> tokio::task::JoinHandle<Vec<String>> {
    let (client, approval) = (client.clone(), approval.to_owned());
    tokio::spawn(async move { watched(&client, &approval).await })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_is_heard_through_another_engine_and_after_the_listener_was_cut_off() {
    let mut world = World::start().await;
    world.add_engine(Default::default()).await;
    tools(&world).await;
    let boss = world.client_of(1, "approver", "boss").await;
    let mut agent = world.agent().await;
    let client = agent.client.clone();
    let approval = asked(&mut agent, &wire(1)).await.approval_id;
    let listening = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
        AND query LIKE 'LISTEN \"undolog_approvals\"%'";
    eventually("both engines listen", || async {
        let listeners = count(&world, listening).await;
        if listeners == 2 { Ok(()) } else { Err(listeners) }
    })
    .await;
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
        WHERE datname = current_database() AND query LIKE 'LISTEN \"undolog_approvals\"%'";
    assert_eq!(count(&world, cut).await, 2);
    let watcher = spawn_watch(&client, &approval);
    waiting(&world, 1).await;
    reject(&boss, &approval).await.unwrap();
    assert_eq!(watcher.await.unwrap().last().unwrap(), "rejected/rejected");
    within(Duration::from_secs(60), "both engines listen again", || async {
        let listeners = count(&world, listening).await;
        if listeners == 2 { Ok(()) } else { Err(listeners) }
    })
    .await;
}
