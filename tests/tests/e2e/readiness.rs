//! Readiness says what is true of the database now, and at once; what an administrator changes
//! there for a while leaves nothing behind.

use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use undolog_proto::v1::ListSessionsRequest;
use undolog_tests::run::{EngineOptions, Proxy, ProxyOptions, WorkerOptions};
use undolog_tests::world::{Agent, Client, ToolSpec, reason_of};
use undolog_tests::{World, within};

const NOTICED: Duration = Duration::from_secs(60);

async fn run(world: &World, sql: &str) {
    sqlx::raw_sql(sql).execute(world.pool()).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Changes the database's settings, and cuts every connection of ours so that new ones have them.
async fn set(world: &World, change: &str) {
    let url = world.database.url();
    let (server, database) = url.rsplit_once('/').unwrap();
    let mut admin = PgConnection::connect(&format!("{server}/postgres")).await.unwrap();
    let sql = format!("ALTER DATABASE {database} {change}");
    sqlx::raw_sql(&sql).execute(&mut admin).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    admin.close().await.unwrap();
    cut(world).await;
}

async fn cut(world: &World) {
    run(
        world,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND application_name LIKE 'undolog-%'",
    )
    .await;
}

/// What `/ready` of the engine and of the worker answer. A probe waits for two seconds at most.
async fn ready(world: &World) -> [(u16, String); 2] {
    let client =
        reqwest::Client::builder().timeout(Duration::from_secs(2)).no_proxy().build().unwrap();
    let urls = [world.engines[0].http_url("/ready"), world.workers[0].http_url("/ready")];
    let mut answers = Vec::new();
    for url in urls {
        let answer = client.get(url).send().await.expect("an answer in time");
        answers.push((answer.status().as_u16(), answer.text().await.unwrap()));
    }
    answers.try_into().unwrap()
}

async fn all_become(world: &World, status: u16, words: &str) {
    within(NOTICED, &format!("both answer {status} {words}"), || async {
        let answers = ready(world).await;
        match answers.iter().all(|(code, text)| *code == status && text.contains(words)) {
            true => Ok(()),
            false => Err(answers),
        }
    })
    .await;
}

async fn becomes(proxy: &Proxy, status: u16) {
    within(NOTICED, &format!("the proxy answers {status}"), || async {
        let answer = undolog_tests::http_get(proxy.url("/ready")).await.unwrap();
        if answer.status() == status { Ok(()) } else { Err(answer.status()) }
    })
    .await;
}

async fn world() -> World {
    let world = World::start().await;
    world.tool(ToolSpec::compensable("charge")).await;
    world
}

/// A call is made, and a rollback ends.
async fn all_works(world: &World, key: &str) {
    let client = Client::new(&world.engines[0].grpc_url(), Some(key));
    let mut agent = Agent::begin(client, &world.witness).await;
    agent.call("charge", &json!({"n": 1})).await;
    agent.rollback().await.unwrap();
    agent.wait_state("compensated", NOTICED).await;
}

async fn key(world: &World) -> String {
    world.org.key(world.pool(), "agent", "agent-1").await
}

#[tokio::test(flavor = "multi_thread")]
async fn defaults_of_the_database_change_nothing_for_a_running_process() {
    let mut world = world().await;
    let key = key(&world).await;
    for change in [
        "SET default_transaction_read_only = on",
        "SET search_path = elsewhere",
        "SET synchronous_commit = off",
        "SET lock_timeout = 1",
    ] {
        set(&world, change).await;
        all_works(&world, &key).await;
    }
    // The same for processes that start now.
    world.stop_all();
    world.add_engine(EngineOptions::default()).await;
    world.add_worker(WorkerOptions::default()).await;
    all_works(&world, &key).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_is_not_ready_while_the_disk_is_full() {
    let world = world().await;
    let key = key(&world).await;
    all_become(&world, 200, "").await;
    // No room for a temporary file is what a full disk looks like from inside.
    let proxy = Proxy::start(&world.engines[0].grpc_url(), ProxyOptions::default()).await;
    set(&world, "SET temp_file_limit = 0").await;
    all_become(&world, 503, "no room").await;
    // The proxy has no database: it follows its engine.
    becomes(&proxy, 503).await;
    set(&world, "RESET temp_file_limit").await;
    all_become(&world, 200, "").await;
    becomes(&proxy, 200).await;
    all_works(&world, &key).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_is_not_ready_while_it_cannot_read_or_write_its_tables() {
    let world = world().await;
    run(
        &world,
        "REVOKE SELECT ON undolog_schedules FROM undolog_worker;
         REVOKE UPDATE, INSERT ON undolog_service FROM undolog_app",
    )
    .await;
    all_become(&world, 503, "lacks a right").await;
    run(
        &world,
        "GRANT SELECT ON undolog_schedules TO undolog_worker;
         GRANT UPDATE, INSERT ON undolog_service TO undolog_app",
    )
    .await;
    all_become(&world, 200, "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_database_readiness_answers_at_once_and_calls_before_their_deadline() {
    let world = world().await;
    let mut agent = world.agent().await;
    agent.call("charge", &json!({"n": 1})).await;
    // Nobody is let in any more.
    set(&world, "ALLOW_CONNECTIONS false").await;
    all_become(&world, 503, "").await;
    let request = agent.request("charge", &json!({"n": 2}));
    let refused = agent.ask(request.clone()).await.unwrap_err();
    assert_eq!(reason_of(&refused), "UNAVAILABLE", "{refused:?}");
    all_become(&world, 503, "the database does not answer").await;

    set(&world, "ALLOW_CONNECTIONS true").await;
    all_become(&world, 200, "").await;
    undolog_tests::world::grant(agent.ask(request).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_died_while_nobody_used_them_cost_no_caller_an_answer() {
    let world = world().await;
    let key = key(&world).await;
    let url = world.engines[0].grpc_url();
    let calls = || async {
        let calls = (0..24).map(|_| {
            let client = Client::new(&url, Some(&key));
            async move { client.sessions().list(ListSessionsRequest::default()).await.map(drop) }
        });
        join_all(calls).await
    };
    for round in 0..3 {
        assert!(calls().await.iter().all(Result::is_ok), "the pool is filled");
        cut(&world).await;
        let cut_at = tokio::time::Instant::now();
        within(NOTICED, "a restart of the database would have taken longer", || async {
            if cut_at.elapsed() > Duration::from_millis(300) { Ok(()) } else { Err("not yet") }
        })
        .await;
        for answer in calls().await {
            answer.unwrap_or_else(|status| panic!("round {round}: {status:?}"));
        }
    }
}
