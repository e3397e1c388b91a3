//! Callers that go away at any moment: no transaction stays open and no acknowledged write is lost.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use tokio::sync::Semaphore;
use undolog_proto::v1::{self, intercept_response::Outcome};
use undolog_tests::{
    eventually,
    world::{Client, Org},
};
use uuid::Uuid;

use super::bench::{Bench, ask, call, commit, reason};

/// When a caller leaves: after nothing up to 100 ms, different for every call and the same in every
/// run. Each fourth stays, so that there is something to lose.
fn patience(n: u64) -> Duration {
    if n.is_multiple_of(4) {
        return Duration::from_secs(60);
    }
    Duration::from_micros(n.wrapping_mul(2_654_435_761) % 100_000)
}

/// A thousand callers, sixteen at a time, each for as long as it has patience; answers the effects
/// whose commits were acknowledged.
async fn thousand(agent: &Client) -> Vec<String> {
    let room = Arc::new(Semaphore::new(16));
    let calls = (0..1_000_u64).map(|n| {
        let (agent, room) = (agent.clone(), Arc::clone(&room));
        tokio::spawn(async move {
            let _place = room.acquire_owned().await.expect("room");
            // Ten sessions, so that calls meet at their locks too.
            let session = Uuid::from_u128(0x4000_8000_0000_0000_0000 + u128::from(n % 10));
            let step = u32::try_from(n).expect("small") + 1;
            let whole = async {
                let asked = ask(&agent, call(session, step, "pay", &json!({"n": n}))).await;
                let Ok(Outcome::Execute(execute)) = asked else { panic!("{asked:?}") };
                let effect = execute.effect_id;
                let done = commit(&agent, session, &effect, &json!({"n": n})).await;
                done.expect("commit");
                effect
            };
            tokio::time::timeout(patience(n), whole).await.ok()
        })
    });
    let mut acknowledged = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        acknowledged.extend(call.await.expect("no panic"));
    }
    acknowledged
}

/// One organisation's callers go away while another's work on the same connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_of_a_cancelled_call_shows_nothing_to_the_next_organisation() {
    let bench = Bench::start_with(|options| options.store.connections_max = 1).await;
    let admin = bench.admin().await;
    bench.tools(&admin).await;
    let agent = bench.agent().await;
    let other = Org::create(bench.db.pool(), "other").await;
    let stranger = bench.client_of(&other, "admin", "root").await;
    let mut seen = 0;
    for n in 0..200_u64 {
        let session = Uuid::from_u128(0x4000_8000_0000_0000_0000 + u128::from(n % 5));
        let step = u32::try_from(n).expect("small") + 1;
        let asking = ask(&agent, call(session, step, "pay", &json!({"n": n})));
        let patience = Duration::from_micros(n.wrapping_mul(2_654_435_761) % 15_000);
        // Whether it was answered in time is chance; that it is not heard by others is not.
        let _ = tokio::time::timeout(patience, asking).await;
        let listed = stranger.sessions().list(v1::ListSessionsRequest::default()).await;
        seen += listed.expect("a list").into_inner().sessions.len();
        let get = v1::GetSessionRequest { session_id: session.to_string(), ..Default::default() };
        assert_eq!(reason(stranger.sessions().get(get).await), "SESSION_NOT_FOUND");
    }
    assert_eq!(seen, 0, "sessions of another organisation were listed");
    let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM undolog_effect_log WHERE org_id = $1")
        .bind(other.id)
        .fetch_one(bench.db.pool())
        .await
        .expect("count");
    assert_eq!(rows, 0, "a call was recorded for another organisation");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_cancelled_calls_leave_nothing_open_and_lose_nothing() {
    let mut bench = Bench::start_with(|options| options.store.connections_max = 2).await;
    let admin = bench.admin().await;
    bench.tools(&admin).await;
    let agent = bench.agent().await;
    let acknowledged = thousand(&agent).await;
    let share = format!("{} of 1000 were acknowledged", acknowledged.len());
    assert!((250..1_000).contains(&acknowledged.len()), "{share}");
    // The pool still works for everybody.
    let last = ask(&agent, call(Uuid::new_v4(), 1, "pay", &json!({}))).await.expect("a grant");
    assert!(matches!(last, Outcome::Execute(_)));
    eventually("no transaction is open", || async {
        let open: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
             AND application_name = 'engine under test' AND state LIKE '%in transaction%'",
        )
        .fetch_one(bench.db.pool())
        .await
        .map_err(|error| error.to_string())?;
        if open == 0 { Ok(()) } else { Err(format!("{open} open")) }
    })
    .await;
    // Steps of callers that left still run to their end; after the shutdown none is left.
    bench.shutdown.cancel();
    bench.running.take().expect("running").stopped().await.expect("stopped in time");
    let committed: Vec<Uuid> =
        sqlx::query_scalar("SELECT effect_id FROM undolog_effect_log WHERE state = 'committed'")
            .fetch_all(bench.db.pool())
            .await
            .expect("the committed effects");
    for effect in &acknowledged {
        let effect: Uuid = effect.parse().expect("an id");
        assert!(committed.contains(&effect), "an acknowledged commit is gone: {effect}");
    }
    let sessions: Vec<Uuid> = sqlx::query_scalar("SELECT session_id FROM undolog_sessions")
        .fetch_all(bench.db.pool())
        .await
        .expect("the sessions");
    for session in sessions {
        undolog_tests::check::fold_check(bench.db.pool(), session).await;
    }
    // Every step is there in whole: an effect with its undo entry and its signature.
    let torn: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM undolog_effect_log e \
         LEFT JOIN undolog_undo_stack u USING (effect_id) \
         LEFT JOIN undolog_signatures s USING (effect_id) \
         WHERE u.undo_id IS NULL OR s.effect_id IS NULL",
    )
    .fetch_one(bench.db.pool())
    .await
    .expect("torn effects");
    assert_eq!(torn, 0);
}
