//! One session that stands still, or is asked everything at once, holds up nobody else.

use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use undolog_tests::run::EngineOptions;
use undolog_tests::world::{Agent, Client, Org, ToolSpec, grant};
use undolog_tests::{World, eventually};

/// Calls of the session that stands still.
const CROWD: u32 = 64;

/// An agent of another organisation, whose tool is registered.
async fn neighbour(world: &World) -> Agent {
    let org = Org::create(world.pool(), "neighbour").await;
    let client = |key: String| Client::new(&world.engines[0].grpc_url(), Some(&key));
    let mut admin = client(org.key(world.pool(), "admin", "root").await);
    ToolSpec::compensable("charge").register(&mut admin, &world.witness).await;
    let agent = client(org.key(world.pool(), "agent", "agent-1").await);
    Agent::begin(agent, &world.witness).await
}

async fn count(world: &World, sql: &str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(world.pool()).await.unwrap()
}

/// Connections of the engine that wait for a lock.
async fn waiting_for_locks(world: &World) -> i64 {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
        AND application_name = 'undolog-engine' AND wait_event_type = 'Lock'";
    count(world, sql).await
}

async fn ticked(world: &World) -> String {
    let sql = "SELECT last_tick_at::text FROM undolog_service WHERE service = 'engine'";
    sqlx::query_scalar(sql).fetch_one(world.pool()).await.unwrap()
}

async fn a_tick_comes(world: &World) {
    let before = ticked(world).await;
    eventually("a tick", || async {
        let now = ticked(world).await;
        if now == before { Err(now) } else { Ok(()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_somebody_holds_holds_up_nobody_else() {
    let world = World::start().await;
    world.tool(ToolSpec::compensable("charge")).await;
    let mut stuck = world.agent().await;
    let mut other = neighbour(&world).await;

    let mut holder = PgConnection::connect(&world.database.url()).await.unwrap();
    let mut held = holder.begin().await.unwrap();
    sqlx::query("SELECT 1 FROM undolog_sessions WHERE session_id = $1 FOR UPDATE")
        .bind(stuck.session)
        .execute(&mut *held)
        .await
        .unwrap();
    let crowd: Vec<_> = (0..CROWD)
        .map(|n| {
            let request = stuck.request("charge", &json!({"n": n}));
            let agent = stuck.clone();
            tokio::spawn(async move { agent.ask(request).await })
        })
        .collect();
    eventually("the session is waited for", || async {
        let waiting = waiting_for_locks(&world).await;
        if waiting > 0 { Ok(()) } else { Err(waiting) }
    })
    .await;

    // All of this happens while the row is held.
    let began = Instant::now();
    let mine = other.grant("charge", &json!({"n": 1})).await;
    let asked = began.elapsed();
    other.commit(&mine.effect_id, &json!({"id": "x"})).await.expect("a report");
    let reported = began.elapsed() - asked;
    a_tick_comes(&world).await;
    let waiting = waiting_for_locks(&world).await;
    assert!(waiting <= 1, "{waiting} connections wait for one session");
    held.rollback().await.unwrap();
    holder.close().await.unwrap();

    for answer in join_all(crowd).await {
        grant(answer.expect("no panic"));
    }
    println!("while a session was held: another's call {asked:?}, its report {reported:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_and_ticks_go_on_while_all_calls_wait() {
    let mut world = World::without_servers().await;
    let arguments = vec!["--database-connections".to_owned(), "2".to_owned()];
    world.add_engine(EngineOptions { arguments, ..EngineOptions::default() }).await;
    world.tool(ToolSpec::compensable("charge")).await;
    world.tool(ToolSpec::compensable("refresh")).await;
    let mut working = world.agent().await;
    let granted = working.grant("charge", &json!({"n": 0})).await;
    let mut agents = Vec::new();
    for _ in 0..CROWD {
        agents.push(Agent::begin(working.client.clone(), &world.witness).await);
    }

    // A change of the registry that takes its time: every call of a tool waits for it.
    let mut holder = PgConnection::connect(&world.database.url()).await.unwrap();
    let mut held = holder.begin().await.unwrap();
    sqlx::query("LOCK TABLE undolog_tool_registry IN ACCESS EXCLUSIVE MODE")
        .execute(&mut *held)
        .await
        .unwrap();
    let crowd: Vec<_> = agents
        .into_iter()
        .map(|mut agent| {
            let request = agent.request("refresh", &json!({"n": 0}));
            tokio::spawn(async move { agent.ask(request).await })
        })
        .collect();
    eventually("both connections wait", || async {
        let waiting = waiting_for_locks(&world).await;
        if waiting == 2 { Ok(()) } else { Err(waiting) }
    })
    .await;
    let began = Instant::now();
    working.commit(&granted.effect_id, &json!({"id": "x"})).await.expect("a report");
    let reported = began.elapsed();
    a_tick_comes(&world).await;
    held.rollback().await.unwrap();
    holder.close().await.unwrap();
    for answer in crowd {
        // Some lost their patience: what matters is that nobody hangs.
        drop(tokio::time::timeout(Duration::from_secs(60), answer).await.expect("an answer"));
    }
    println!("while every call waited: a report {reported:?}");
}
