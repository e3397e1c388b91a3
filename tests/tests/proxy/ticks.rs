//! An outage of the proxies expires nothing that was begun through them.

use std::time::Duration;

use undolog_tests::run::ProxyOptions;
use undolog_tests::{SOON, World, within};

use super::bench::Bench;

/// Lets time pass in which engines ticked and proxies did not.
async fn pass_without_proxies(bench: &mut Bench, time: Duration) {
    let mut tx = bench.world.pool().begin().await.unwrap();
    // The rows' locks keep an engine from ticking between the jump and the update.
    sqlx::query("SELECT 1 FROM undolog_service FOR UPDATE").execute(&mut *tx).await.unwrap();
    bench.world.server().clock().advance(time);
    sqlx::query(
        "UPDATE undolog_service SET last_tick_at = clock_timestamp() WHERE service = 'engine'",
    )
    .execute(&mut *tx)
    .await
    .unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_outlives_an_outage_of_the_proxy_that_it_was_begun_through() {
    let world = World::start_private().await;
    let key = world.org.key(world.pool(), "executor", "proxy").await;
    let options = ProxyOptions {
        environment: vec![("UNDOLOG_PROXY_KEY".to_owned(), key)],
        ..ProxyOptions::default()
    };
    let mut bench = Bench::on(world, options).await;
    let agent = bench.agent().await;
    let session = agent.begin().await;
    let direct = bench.world.agent().await;
    bench.proxy.process.kill9();
    pass_without_proxies(&mut bench, Duration::from_secs(600)).await;
    // The agent that asked the engine itself was silent too long; the other one could not speak.
    direct.wait_state("compensated", SOON).await;
    bench.proxy.start_again().await;
    let resumed = "SELECT resumed_at > clock_timestamp() - interval '1 minute'
        FROM undolog_proxies";
    within(SOON, "the journal hears that proxies are back", || async {
        let is_back: bool =
            sqlx::query_scalar(resumed).fetch_one(bench.world.pool()).await.unwrap();
        if is_back { Ok(()) } else { Err("still away") }
    })
    .await;
    let shown = agent.get(&format!("/sessions/{session}")).await.is(200).body;
    assert_eq!(shown["session"]["state"], "active");
}
