//! Whose outage holds whose leases: proxies of one organisation, of another, and those that are
//! gone.

use std::time::Duration;

use undolog_core::{
    Reason,
    limits::{PROXIES_GONE_SECONDS, SESSION_LEASE_SECONDS_MAX},
    role::Role,
};
use undolog_store::{
    operate::{Resolution, ResolveEffect},
    service,
    sessions::{Begin, RollbackScope},
    sweeps,
};
use undolog_tests::world::Org;
use uuid::Uuid;

use crate::{
    bench::Bench,
    walker::{Walker, pay, run, time_passes, worker_store},
};

/// A session that was begun through a proxy of its organisation, which has ticked once, with one
/// payment and one call under way.
async fn through_a_proxy() -> (Bench, Uuid) {
    let bench = Bench::with_clock().await;
    service::tick(&bench.store, "engine").await.expect("a tick");
    service::tick_proxy(&bench.store, bench.org.id, None).await.expect("a tick");
    let mut caller = bench.agent();
    caller.via_proxy = true;
    bench.store.run(Begin { caller, ..bench.begin_step() }).await.expect("begin");
    pay(&bench, 1).await;
    let running = bench.grant(2, "pay").await;
    (bench, running)
}

/// Lets time pass in which engines ticked all along, and no proxy did.
async fn pass(bench: &Bench, seconds: u64) {
    bench.db.clock().advance(Duration::from_secs(seconds));
    let ticked = "UPDATE undolog_service SET last_tick_at = clock_timestamp()";
    run(bench.db.pool(), ticked).await;
}

#[tokio::test]
async fn a_session_begun_through_a_proxy_that_is_gone_for_good_ends() {
    let (bench, running) = through_a_proxy().await;
    let store = worker_store(&bench).await;
    pass(&bench, 1_800).await;
    sweeps::grants(&store).await.expect("sweep");
    sweeps::sessions(&store).await.expect("sweep");
    assert_eq!(bench.effect_state(running).await, "executing", "half an hour is an outage");
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    pass(&bench, u64::from(PROXIES_GONE_SECONDS)).await;
    sweeps::grants(&store).await.expect("sweep");
    assert_eq!(bench.effect_state(running).await, "unknown");
    pass(&bench, 901).await;
    time_passes(&bench).await;
    let walker = Walker::claim(&bench).await;
    assert_eq!(walker.succeed().await.len(), 2);
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
}

#[tokio::test]
async fn sessions_of_proxies_that_are_gone_are_lost_by_their_lease() {
    let (bench, running) = through_a_proxy().await;
    let store = worker_store(&bench).await;
    pass(&bench, u64::from(PROXIES_GONE_SECONDS) + 1).await;
    assert_eq!(sweeps::grants(&store).await.expect("sweep").settled, 1);
    assert_eq!(bench.effect_state(running).await, "unknown");
    assert_eq!(sweeps::sessions(&store).await.expect("sweep").settled, 1);
}

#[tokio::test]
async fn an_outage_of_everything_gives_proxies_their_hour_from_our_return() {
    let (bench, running) = through_a_proxy().await;
    let store = worker_store(&bench).await;
    bench.db.clock().advance(Duration::from_secs(7_200));
    service::tick(&bench.store, "engine").await.expect("a tick");
    pass(&bench, 1_800).await;
    sweeps::grants(&store).await.expect("sweep");
    assert_eq!(bench.effect_state(running).await, "executing");
    service::tick_proxy(&bench.store, bench.org.id, None).await.expect("a tick");
    sweeps::grants(&store).await.expect("sweep");
    assert_eq!(bench.effect_state(running).await, "executing", "leases count from their return");
}

#[tokio::test]
async fn another_organisations_proxies_say_nothing_about_ones_own() {
    let (bench, running) = through_a_proxy().await;
    let store = worker_store(&bench).await;
    let other = Org::create(bench.db.pool(), "other").await;
    pass(&bench, 1_000).await;
    service::tick_proxy(&bench.store, other.id, None).await.expect("a tick");
    sweeps::grants(&store).await.expect("sweep");
    sweeps::sessions(&store).await.expect("sweep");
    assert_eq!(bench.effect_state(running).await, "executing");
    assert_eq!(bench.session_state().await, "active");
    service::tick_proxy(&bench.store, bench.org.id, None).await.expect("a tick");
    pass(&bench, 10).await;
    sweeps::sessions(&store).await.expect("sweep");
    assert_eq!(bench.session_state().await, "active", "its lease counts from their return");
}

#[tokio::test]
async fn an_operator_settles_a_call_whose_lease_is_past_while_proxies_are_out() {
    let (bench, running) = through_a_proxy().await;
    let resolve = |resolve: Resolution| ResolveEffect {
        caller: bench.caller(Role::Operator, "ann"),
        session_id: bench.session,
        effect_id: running,
        resolve,
        note: "asked the provider".into(),
    };
    let refused = bench.store.run(resolve(Resolution::NotApplied)).await;
    crate::bench::refused(refused, Reason::InProgress);
    pass(&bench, 901).await;
    bench.store.run(resolve(Resolution::NotApplied)).await.expect("resolved");
    assert_eq!(bench.effect_state(running).await, "failed");
    bench.check().await;
}

#[tokio::test]
async fn a_row_of_proxies_remembers_a_bounded_number() {
    let bench = Bench::new().await;
    let first = Uuid::new_v4();
    service::tick_proxy(&bench.store, bench.org.id, Some(first)).await.expect("a tick");
    let is_known = || service::is_proxy(&bench.store, bench.org.id, first);
    assert!(is_known().await.expect("asked"));
    for _ in 0..300 {
        let id = Some(Uuid::new_v4());
        service::tick_proxy(&bench.store, bench.org.id, id).await.expect("a tick");
    }
    assert!(!is_known().await.expect("asked"));
    service::tick_proxy(&bench.store, bench.org.id, Some(first)).await.expect("a tick");
    assert!(is_known().await.expect("asked"));
    let ids: i32 = sqlx::query_scalar("SELECT cardinality(ids) FROM undolog_proxies")
        .fetch_one(bench.db.pool())
        .await
        .expect("a row");
    assert_eq!(ids, 256);
}

#[tokio::test]
async fn a_lease_longer_than_the_longest_is_refused() {
    let bench = Bench::new().await;
    for (lease_seconds, is_taken) in [
        (SESSION_LEASE_SECONDS_MAX, true),
        (SESSION_LEASE_SECONDS_MAX + 1, false),
        (u32::MAX, false),
    ] {
        let session_id = Some(Uuid::new_v4());
        let begun =
            bench.store.run(Begin { session_id, lease_seconds, ..bench.begin_step() }).await;
        if is_taken {
            begun.expect("begun");
        } else {
            crate::bench::refused(begun, Reason::InvalidArgument);
        }
    }
    assert_eq!(bench.count("undolog_sessions").await, 1);
}
