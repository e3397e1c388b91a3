//! One call is granted once, whoever asks however often.

use futures::future::join_all;
use serde_json::json;
use tonic::{Code, Status};
use undolog_proto::v1::InterceptRequest;
use undolog_proto::v1::intercept_response::Outcome;
use undolog_tests::run::{EngineOptions, WorkerOptions};
use undolog_tests::world::{Agent, Client, Database, ToolSpec, grant, reason_of};
use undolog_tests::{PrivateCluster, TestDb, World};

const CALLERS: usize = 64;

/// Two engines over one database, and a tool.
async fn world_on(database: Database) -> World {
    let mut world = World::on(database).await;
    world.add_engine(EngineOptions::default()).await;
    world.add_engine(EngineOptions::default()).await;
    world.add_worker(WorkerOptions::default()).await;
    world.tool(ToolSpec::compensable("charge")).await;
    world
}

/// The same request from 64 callers at once, through both engines.
async fn storm(
    world: &World,
    agent: &Agent,
    request: &InterceptRequest,
) -> Vec<Result<Outcome, Status>> {
    let other = world.client_of(1, "agent", "agent-1").await;
    let callers = (0..CALLERS).map(|caller| {
        let client: Client = if caller % 2 == 0 { agent.client.clone() } else { other.clone() };
        let request = request.clone();
        async move {
            let answer = client.engine().intercept(request).await?;
            Ok(answer.into_inner().outcome.expect("an outcome"))
        }
    });
    join_all(callers).await
}

/// Exactly one grant; all others are told that it is in progress.
fn assert_one_grant(answers: &[Result<Outcome, Status>]) -> String {
    let mut granted = Vec::new();
    for answer in answers {
        match answer {
            Ok(Outcome::Execute(grant)) => granted.push(grant.effect_id.clone()),
            Ok(other) => panic!("neither granted nor refused: {other:?}"),
            Err(status) => {
                assert_eq!(status.code(), Code::Aborted, "{status:?}");
                assert_eq!(reason_of(status), "IN_PROGRESS", "{status:?}");
            }
        }
    }
    assert_eq!(granted.len(), 1, "{granted:?}");
    granted.remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn of_64_callers_through_two_engines_one_is_granted() {
    let world = world_on(Database::Shared(TestDb::new().await)).await;
    let mut agent = world.agent().await;
    let request = agent.request("charge", &json!({"amount": 1}));
    assert_one_grant(&storm(&world, &agent, &request).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_hear_the_winners_result() {
    let world = world_on(Database::Shared(TestDb::new().await)).await;
    let mut agent = world.agent().await;
    let mut request = agent.request("charge", &json!({"amount": 1}));
    request.wait_ms = 20_000;
    let winner = grant(agent.ask(request.clone()).await);
    let result = json!({"id": "charge-1", "amount": 1});
    let (answers, ()) = tokio::join!(storm(&world, &agent, &request), async {
        agent.commit(&winner.effect_id, &result).await.unwrap();
    });
    for answer in answers {
        let Ok(Outcome::Replay(replay)) = answer else { panic!("{answer:?}") };
        assert_eq!(replay.effect_id, winner.effect_id);
        let output = replay.cached_result.expect("a result").output;
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&output).unwrap(), result);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_is_granted_at_the_end_of_a_month() {
    let server = PrivateCluster::start().await;
    let last_moment = sqlx::query_scalar(
        "SELECT (date_trunc('month', now() AT TIME ZONE 'UTC') + interval '2 months'
                 - interval '0.1 s') AT TIME ZONE 'UTC'",
    )
    .fetch_one(server.pool())
    .await
    .unwrap();
    let mut world = world_on(Database::Private(Box::new(server))).await;
    let mut agent = world.agent().await;
    let request = agent.request("charge", &json!({"amount": 1}));
    world.server().set_clock(last_moment).await;
    let effect = assert_one_grant(&storm(&world, &agent, &request).await);
    let after: bool = sqlx::query_scalar("SELECT clock_timestamp() > $1 + interval '0.1 s'")
        .bind(last_moment)
        .fetch_one(world.pool())
        .await
        .unwrap();
    assert!(after, "the storm did not reach the next month");
    let again = agent.ask(request.clone()).await.unwrap_err();
    assert_eq!(reason_of(&again), "IN_PROGRESS");
    agent.commit(&effect, &json!({"id": "charge-1"})).await.unwrap();
    assert!(matches!(agent.ask(request).await.unwrap(), Outcome::Replay(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_is_granted_whatever_the_database_calls_its_default_isolation() {
    let db = TestDb::new().await;
    let sql = format!(
        "ALTER DATABASE {} SET default_transaction_isolation = 'repeatable read'",
        db.name()
    );
    sqlx::query(&sql).execute(db.pool()).await.unwrap();
    let world = world_on(Database::Shared(db)).await;
    let mut agent = world.agent().await;
    let request = agent.request("charge", &json!({"amount": 1}));
    let effect = assert_one_grant(&storm(&world, &agent, &request).await);
    agent.commit(&effect, &json!({"id": "charge-1"})).await.unwrap();
    agent.rollback().await.unwrap();
    agent.wait_state("halted", undolog_tests::SOON).await;
}
