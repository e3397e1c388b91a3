//! An irreversible call never runs without a decision, and no decision is lost.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use tonic_types::StatusExt;
use undolog_proto::v1::intercept_response::Outcome;
use undolog_proto::v1::{CommitRequest, InterceptRequest, ListApprovalsRequest, ToolResult};
use undolog_tests::pg::Skew;
use undolog_tests::run::{EngineOptions, WorkerOptions};
use undolog_tests::world::{Agent, Client, grant, reason_of};
use undolog_tests::{SOON, World, eventually, size, within};

use crate::humans::{
    approve, approve_with, asked, count, effect_state, reject, revoke, shown, standing, swept,
    tools, waits, wire,
};

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);
/// How many decide about one request at once.
const DECIDERS: usize = 200;

/// What one of many deciders heard.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Won,
    /// The state and the name of the winner.
    Lost(String, String),
    /// Too late, and nobody had decided.
    Late,
}

fn heard(answer: Result<(), tonic::Status>) -> Heard {
    let Err(status) = answer else { return Heard::Won };
    let info = status.get_details_error_info().unwrap_or_else(|| panic!("{status:?}"));
    match info.reason.as_str() {
        "APPROVAL_ALREADY_RESOLVED" => {
            Heard::Lost(info.metadata["state"].clone(), info.metadata["resolved_by"].clone())
        }
        "APPROVAL_TIMED_OUT" => Heard::Late,
        other => panic!("{other}: {status:?}"),
    }
}

/// Waits for the database's clock.
async fn until_before(world: &World, at: &prost_types::Timestamp, early: &str) {
    let at = chrono::DateTime::from_timestamp(at.seconds, u32::try_from(at.nanos).unwrap());
    let sql = format!("SELECT clock_timestamp() >= $1 - interval '{early}'");
    within(SOON, "the deadline is near", || async {
        let near: bool =
            sqlx::query_scalar(&sql).bind(at).fetch_one(world.pool()).await.expect("the time");
        if near { Ok(()) } else { Err(()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_200_deciders_and_three_sweeping_workers_one_wins() {
    let mut world = World::start().await;
    world.add_engine(EngineOptions::default()).await;
    for _ in 0..2 {
        world.add_worker(WorkerOptions::default()).await;
    }
    tools(&world).await;
    world.org.set(world.pool(), "default_approval_timeout_seconds", "3").await;
    let mut people = Vec::new();
    for n in 0..20 {
        people.push(world.client_of(n % 2, "approver", &format!("boss-{n}")).await);
    }
    // Everybody approves; half of them reject; everybody comes when the window is over.
    for (rejecters, early) in [(0, "0.3 s"), (DECIDERS / 2, "0.1 s"), (DECIDERS / 2, "-0.05 s")] {
        let mut agent = world.agent().await;
        let request = agent.request("wire", &wire(1));
        let waiting = waits(agent.ask(request.clone()).await);
        let asked = standing(&people[0], &waiting.approval_id).await;
        until_before(&world, asked.timeout_at.as_ref().unwrap(), early).await;
        let decisions = (0..DECIDERS).map(|n| {
            let (client, id) = (people[n % people.len()].clone(), waiting.approval_id.clone());
            tokio::spawn(async move {
                if n < rejecters {
                    reject(&client, &id).await
                } else {
                    approve(&client, &id).await.map(|_| ())
                }
            })
        });
        let answers: Vec<Heard> = join_all(decisions)
            .await
            .into_iter()
            .map(|answer| heard(answer.expect("no panic")))
            .collect();
        let decided = eventually("somebody decided", || async {
            let shown = shown(&people[0], &waiting.approval_id).await;
            let now = shown.approval.clone().unwrap();
            if now.state == "pending" { Err(now) } else { Ok(shown) }
        })
        .await;
        assert_eq!(decided.events.len(), 1, "{:?}", decided.events);
        let now = decided.approval.unwrap();
        let swept = usize::from(now.resolved_by == "system:timeout");
        let won = answers.iter().filter(|heard| **heard == Heard::Won).count();
        assert_eq!(won + swept, 1, "{now:?}");
        for heard in &answers {
            if let Heard::Lost(state, by) = heard {
                assert_eq!((state, by), (&now.state, &now.resolved_by), "a loser saw another");
            }
        }
        let asks = (0..5).map(|_| agent.ask(request.clone()));
        let grants = join_all(asks).await;
        let granted = grants.iter().filter(|g| matches!(g, Ok(Outcome::Execute(_)))).count();
        assert_eq!(granted, usize::from(now.state == "approved"), "{grants:?}");
        undolog_tests::check::fold_check(world.pool(), agent.session).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_waiting_calls_and_one_approval_execute_once() {
    let mut world = World::start().await;
    world.add_engine(EngineOptions::default()).await;
    tools(&world).await;
    let mut agent = world.agent().await;
    let request = InterceptRequest { wait_ms: 20_000, ..agent.request("wire", &wire(1)) };
    let approval =
        waits(agent.ask(InterceptRequest { wait_ms: 0, ..request.clone() }).await).approval_id;
    let key = world.org.key(world.pool(), "agent", "agent-1").await;
    let mut calls = Vec::new();
    for n in 0..10 {
        let client = Client::new(&world.engines[n % 2].grpc_url(), Some(&key));
        let agent = Agent::of_session(client, &world.witness, agent.session);
        let request = request.clone();
        calls.push(tokio::spawn(async move {
            match agent.ask(request).await.expect("an answer") {
                Outcome::Execute(granted) => {
                    agent.execute("wire", &granted.effect_id, &wire(1)).await;
                    agent.commit(&granted.effect_id, &json!({"sent": true})).await.unwrap();
                    true
                }
                Outcome::Replay(_) => false,
                Outcome::AwaitingApproval(_) => panic!("nobody decided"),
            }
        }));
    }
    waiting(&world, 10).await;
    approve(&world.client("approver", "boss").await, &approval).await.unwrap();
    let executed = join_all(calls).await.into_iter().filter(|ran| *ran.as_ref().unwrap()).count();
    assert_eq!(executed, 1);
    assert_eq!(world.witness.calls_to("/do/wire").len(), 1);
    undolog_tests::check::fold_check(world.pool(), agent.session).await;
}

/// Waits until so many calls wait in all engines together.
pub(crate) async fn waiting(world: &World, calls: usize) {
    let http = reqwest::Client::builder().timeout(SOON).no_proxy().build().unwrap();
    eventually(&format!("{calls} calls wait"), || async {
        let mut sum = 0.0;
        for engine in &world.engines {
            let answer = http.get(engine.http_url("/metrics")).send().await.unwrap();
            let text = answer.text().await.unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix("undolog_waiting_calls "));
            sum += line.map_or(0.0, |number| number.parse::<f64>().unwrap());
        }
        #[expect(clippy::float_cmp, reason = "small whole numbers")]
        if sum == f64::from(u32::try_from(calls).unwrap()) { Ok(()) } else { Err(sum) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_call_runs_on_no_path() {
    let world = World::start().await;
    tools(&world).await;
    let boss = world.client("approver", "boss").await;
    let mut agent = world.agent().await;
    let request = agent.request("wire", &wire(1));
    let waiting = waits(agent.ask(request.clone()).await);
    reject(&boss, &waiting.approval_id).await.unwrap();
    // An approval after it, a second rejection, a revocation.
    for refused in [
        approve(&boss, &waiting.approval_id).await.map(|_| ()),
        reject(&boss, &waiting.approval_id).await,
        revoke(&boss, &waiting.approval_id).await,
    ] {
        assert_eq!(reason_of(&refused.unwrap_err()), "APPROVAL_ALREADY_RESOLVED");
    }
    // The same call again, patiently too, and as another attempt of the same caller.
    for again in [
        request.clone(),
        InterceptRequest { wait_ms: 500, ..request.clone() },
        InterceptRequest { accepts_approved_args: true, ..request.clone() },
        InterceptRequest { grant_token: "mine".into(), ..request.clone() },
    ] {
        assert_eq!(reason_of(&agent.ask(again).await.unwrap_err()), "APPROVAL_REJECTED");
    }
    // A report about a call that was never granted.
    let told = agent.commit(&waiting.effect_id, &json!({"sent": true})).await.unwrap_err();
    assert_eq!(reason_of(&told), "NOT_GRANTED");
    for attempt in [1, 2] {
        let request = CommitRequest {
            effect_id: waiting.effect_id.clone(),
            session_id: agent.session.to_string(),
            result: Some(ToolResult { success: true, ..ToolResult::default() }),
            attempt,
            ..CommitRequest::default()
        };
        agent.client.engine().commit(request).await.unwrap_err();
    }
    // The session is halted (documented), so another step is not even asked for.
    let another = agent.request("wire", &wire(1));
    assert_eq!(reason_of(&agent.ask(another).await.unwrap_err()), "SESSION_HALTED");
    assert_eq!(effect_state(&world, &waiting.effect_id).await, "rejected");
    let granted = "SELECT count(*) FROM undolog_effect_log WHERE lease_ms IS NOT NULL";
    assert_eq!(count(&world, granted).await, 0);
    undolog_tests::check::fold_check(world.pool(), agent.session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_call_never_runs_and_another_step_asks_again() {
    let world = World::start().await;
    tools(&world).await;
    let boss = world.client("approver", "boss").await;
    let mut agent = world.agent().await;
    let request = agent.request("wire", &wire(1));
    let first = waits(agent.ask(request.clone()).await);
    approve(&boss, &first.approval_id).await.unwrap();
    revoke(&boss, &first.approval_id).await.unwrap();
    assert_eq!(reason_of(&agent.ask(request.clone()).await.unwrap_err()), "APPROVAL_REVOKED");
    let told = agent.commit(&first.effect_id, &json!({"sent": true})).await.unwrap_err();
    assert_eq!(reason_of(&told), "NOT_GRANTED");
    let second = asked(&mut agent, &wire(1)).await;
    assert_ne!(second.approval_id, first.approval_id, "one decision let two calls run");
    assert_eq!(reason_of(&agent.ask(request).await.unwrap_err()), "APPROVAL_REVOKED");
    let now = standing(&boss, &first.approval_id).await;
    assert_eq!((now.state.as_str(), now.effect_state.as_str()), ("approved", "rejected"));
    assert!(now.granted_at.is_none());
    undolog_tests::check::fold_check(world.pool(), agent.session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn edited_arguments_are_executed_as_approved_or_not_at_all() {
    let world = World::start().await;
    tools(&world).await;
    let boss = world.client("approver", "boss").await;
    let mut agent = world.agent().await;
    let request = agent.request("wire", &wire(900));
    let waiting = waits(agent.ask(request.clone()).await);
    let edited = json!({"to": "acme", "cents": 25, "memo": "agreed\u{0}by phone"});
    let approved =
        approve_with(&boss, &waiting.approval_id, Some(&edited)).await.expect("approve").args;
    assert_eq!(reason_of(&agent.ask(request.clone()).await.unwrap_err()), "ARGS_MODIFIED");
    let accepting = InterceptRequest { accepts_approved_args: true, ..request.clone() };
    let granted = grant(agent.ask(accepting).await);
    assert_eq!(granted.approved_args, approved);
    assert_eq!(granted.approval_id, waiting.approval_id);
    let body: serde_json::Value = serde_json::from_slice(&granted.approved_args).unwrap();
    agent.execute("wire", &granted.effect_id, &body).await;
    let calls = world.witness.calls_to("/do/wire");
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].body, approved, "what ran is not what was approved");
    agent.commit(&granted.effect_id, &json!({"sent": true})).await.unwrap();

    let audit = shown(&boss, &waiting.approval_id).await;
    let now = audit.approval.unwrap();
    assert_eq!(now.proposed_args, br#"{"cents":900,"to":"acme"}"#);
    assert_eq!(now.approved_args, approved);
    assert!(now.granted_at.is_some());
    assert_eq!(audit.events.len(), 1);
    assert_eq!(
        (audit.events[0].action.as_str(), audit.events[0].actor.as_str()),
        ("modify", "boss")
    );
    let diff: serde_json::Value = serde_json::from_slice(&audit.events[0].args_diff).unwrap();
    assert!(diff.as_array().is_some_and(|steps| steps.len() == 2), "{diff}");
    undolog_tests::check::fold_check(world.pool(), agent.session).await;
}

/// How often every process is restarted; `UNDOLOG_TEST_RESTARTS` says otherwise.
fn restarts() -> usize {
    size("UNDOLOG_TEST_RESTARTS", 4)
}

/// How many requests stand open meanwhile, of ten sessions; `UNDOLOG_TEST_REQUESTS` says otherwise.
fn open_requests() -> usize {
    size("UNDOLOG_TEST_REQUESTS", 100)
}

async fn pending(client: &Client) -> BTreeSet<String> {
    let request = ListApprovalsRequest { page_size: 500, ..ListApprovalsRequest::default() };
    let page = client.operator().list_approvals(request).await.expect("list").into_inner();
    assert_eq!(page.next_page_token, "");
    page.approvals.into_iter().map(|approval| approval.approval_id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn restarts_lose_no_request_and_double_none() {
    let mut world = World::start().await;
    tools(&world).await;
    let boss = world.client("approver", "boss").await;
    let client = world.client("agent", "agent-1").await;
    let mut requests = Vec::new();
    let mut ids = BTreeSet::new();
    for _ in 0..10 {
        let mut agent = Agent::begin(client.clone(), &world.witness).await;
        for n in 0..open_requests() / 10 {
            let request = agent.request("wire", &wire(u32::try_from(n).unwrap()));
            let waiting = waits(agent.ask(request.clone()).await);
            ids.insert(waiting.approval_id.clone());
            requests.push((agent.clone(), request, waiting));
        }
    }
    assert_eq!(ids.len(), open_requests());
    for _ in 0..restarts() {
        world.engines[0].process.kill9();
        world.workers[0].process.kill9();
        world.engines[0].start_again().await;
        world.workers[0].start_again().await;
    }
    swept(&world, "approvals").await;
    let listed = within(SOON, "the engine answers", || async {
        let request = ListApprovalsRequest::default();
        boss.operator().list_approvals(request).await.map(|_| ()).map_err(|s| s.to_string())
    });
    listed.await;
    assert_eq!(pending(&boss).await, ids, "other requests than before");
    // Tickets are of schedules alone: at most two each, however often anything started.
    let tickets = count(&world, "SELECT count(*) FROM apalis.jobs").await;
    let schedules = count(&world, "SELECT count(*) FROM undolog_schedules").await;
    assert!(tickets <= 2 * schedules, "{tickets} tickets of {schedules} schedules");

    for some in requests.chunks(25) {
        let runs = some.iter().map(|(agent, request, waiting)| async {
            approve(&boss, &waiting.approval_id).await.expect("it is still approvable");
            let asks = join_all((0..2).map(|_| agent.ask(request.clone()))).await;
            let granted = asks.iter().filter(|a| matches!(a, Ok(Outcome::Execute(_)))).count();
            assert_eq!(granted, 1, "{asks:?}");
            agent.commit(&waiting.effect_id, &json!({"sent": true})).await.expect("commit");
        });
        join_all(runs).await;
    }
    let used = "SELECT count(*) FROM undolog_approval_requests WHERE granted_at IS NOT NULL";
    let all = i64::try_from(open_requests()).unwrap();
    assert_eq!(count(&world, used).await, all);
    let done = "SELECT count(*) FROM undolog_effect_log WHERE state = 'committed'";
    assert_eq!(count(&world, done).await, all);
    undolog_tests::check::fold_check(world.pool(), requests[0].0.session).await;
    println!("{all} requests outlived {} restarts; {tickets} tickets", restarts());
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_outage_over_the_deadline_auto_approval_waits_fifteen_minutes() {
    let mut world = World::start_private().await;
    tools(&world).await;
    world.org.set(world.pool(), "auto_approve_on_timeout", "true").await;
    let mut agent = world.agent().await;
    let request = agent.request("wire", &wire(1));
    let waiting = waits(agent.ask(request.clone()).await);
    world.stop_all();
    world.outage(2 * HOUR);
    world.add_engine(EngineOptions::default()).await;
    world.add_worker(WorkerOptions::default()).await;
    let boss = world.client("approver", "boss").await;
    swept(&world, "approvals").await;
    assert_eq!(standing(&boss, &waiting.approval_id).await.state, "pending");
    world.pass(14 * MINUTE).await;
    swept(&world, "approvals").await;
    assert_eq!(standing(&boss, &waiting.approval_id).await.state, "pending");
    world.pass(2 * MINUTE).await;
    within(SOON, "policy approves it", || async {
        let now = standing(&boss, &waiting.approval_id).await;
        if now.state == "auto_approved" { Ok(()) } else { Err(now.state) }
    })
    .await;
    let client = world.client("agent", "agent-1").await;
    let agent = Agent::of_session(client, &world.witness, agent.session);
    let granted = grant(agent.ask(request).await);
    assert_eq!(granted.approval_id, waiting.approval_id);
    let audit = shown(&boss, &waiting.approval_id).await.events;
    assert_eq!(audit.len(), 1);
    assert_eq!((audit[0].action.as_str(), audit[0].actor.as_str()), ("timeout", "system:timeout"));
    undolog_tests::check::fold_check(world.pool(), agent.session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_clock_of_the_program_moves_no_approval_window() {
    for skew in [Skew::ahead(10 * MINUTE), Skew::behind(10 * MINUTE)] {
        let mut world = skewed(&skew).await;
        tools(&world).await;
        world.org.set(world.pool(), "default_approval_timeout_seconds", "300").await;
        let boss = world.client("approver", "boss").await;
        let mut agent = world.agent().await;
        let first = asked(&mut agent, &wire(1)).await;
        swept(&world, "approvals").await;
        let now = standing(&boss, &first.approval_id).await;
        assert_eq!(now.state, "pending", "{skew:?} ended a window at once");
        let window = now.timeout_at.unwrap().seconds - now.created_at.unwrap().seconds;
        assert_eq!(window, 300);
        world.pass(4 * MINUTE).await;
        swept(&world, "approvals").await;
        approve(&boss, &first.approval_id).await.expect("the window is open for four minutes");

        let mut agent = world.agent().await;
        let second = asked(&mut agent, &wire(2)).await;
        world.pass(5 * MINUTE + Duration::from_secs(1)).await;
        within(SOON, "it times out", || async {
            let now = standing(&boss, &second.approval_id).await;
            if now.state == "timed_out" { Ok(()) } else { Err(now.state) }
        })
        .await;
    }
}

/// A world whose engine and worker have a wrong clock; the database's is right.
pub(crate) async fn skewed(skew: &Skew) -> World {
    let server = undolog_tests::PrivateCluster::start().await;
    let mut world = World::on(undolog_tests::world::Database::Private(Box::new(server))).await;
    let environment = skew.environment();
    world
        .add_engine(EngineOptions { environment: environment.clone(), ..Default::default() })
        .await;
    world.add_worker(WorkerOptions { environment, ..Default::default() }).await;
    world
}
