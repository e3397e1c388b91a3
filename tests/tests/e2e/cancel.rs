//! A caller that goes away leaves nothing or the whole step, never an open transaction.

use std::time::{Duration, Instant};

use serde_json::json;
use undolog_proto::v1::intercept_response::Outcome;
use undolog_tests::run::EngineOptions;
use undolog_tests::world::ToolSpec;
use undolog_tests::{SOON, World, size};

/// How many calls are made; `UNDOLOG_TEST_CANCELLED_CALLS` says otherwise.
fn calls() -> u32 {
    u32::try_from(size("UNDOLOG_TEST_CANCELLED_CALLS", 250)).expect("a small number")
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_calls_leave_no_transaction_and_lose_no_write() {
    let mut world = World::without_servers().await;
    let options = EngineOptions {
        arguments: vec!["--database-connections".to_owned(), "2".to_owned()],
        ..EngineOptions::default()
    };
    world.add_engine(options).await;
    world.tool(ToolSpec::compensable("charge")).await;
    let mut agent = world.agent().await;
    let mut acknowledged = Vec::new();
    let calls = calls();
    // How long a call takes on this machine just now.
    let mut usual = Duration::ZERO;
    for n in 0..calls {
        let request = agent.request("charge", &json!({"n": n}));
        // Each tenth is waited for. The others have a spread of patience from "before it arrives"
        // to "after it was answered".
        let patience = if n % 10 == 0 { SOON } else { usual * (n * 37 % 200) / 100 };
        let asked = Instant::now();
        if let Ok(answer) = tokio::time::timeout(patience, agent.ask(request)).await {
            let Ok(Outcome::Execute(grant)) = answer else { panic!("{answer:?}") };
            acknowledged.push(grant.effect_id);
            usual = (usual + asked.elapsed()) / 2;
        }
    }
    assert!(!acknowledged.is_empty(), "every call was cancelled");
    assert!(acknowledged.len() < calls as usize, "no call was cancelled");
    // The engine still answers, and what it says can be seen from elsewhere.
    let grant = agent.grant("charge", &json!({"n": "last"})).await;
    agent.commit(&grant.effect_id, &json!({"id": "x"})).await.unwrap();
    acknowledged.push(grant.effect_id);
    let kept: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM undolog_effect_log WHERE effect_id::text = ANY($1)",
    )
    .bind(&acknowledged)
    .fetch_one(world.pool())
    .await
    .unwrap();
    assert_eq!(kept, acknowledged.len() as i64, "an acknowledged call is not there");
    undolog_tests::eventually("no transaction is left open", || async {
        let open: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
             AND state LIKE 'idle in transaction%'",
        )
        .fetch_one(world.pool())
        .await
        .unwrap();
        if open == 0 { Ok(()) } else { Err(open) }
    })
    .await;
    undolog_tests::check::fold_check(world.pool(), agent.session).await;
}
