//! Events as they are followed: in order, resumable, none skipped, and only one's own.

use std::{net::SocketAddr, time::Duration};

use secrecy::SecretString;
use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;
use undolog_core::role::Role;
use undolog_engine::EngineOptions;
use undolog_proto::v1::{self, Event};
use undolog_store::{
    Caller, Store, StoreOptions,
    watch::{Watch, WatchRequest},
};
use undolog_tests::{
    pg::PrivateCluster,
    world::{Client, Org},
};
use uuid::Uuid;

use super::bench::{Bench, call, commit, grant, reason};

async fn watch(client: &Client, request: v1::WatchEventsRequest) -> Streaming<Event> {
    client.sessions().watch_events(request).await.expect("a stream").into_inner()
}

async fn next(stream: &mut Streaming<Event>) -> Event {
    let next = timeout(Duration::from_secs(30), stream.message()).await;
    next.expect("an event in time").expect("no error").expect("the stream goes on")
}

async fn all(mut stream: Streaming<Event>) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(event) = stream.message().await.expect("no error") {
        events.push(event);
    }
    events
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sessions_events_come_in_order_and_resume_after_a_cursor() {
    let bench = Bench::start().await;
    let admin = bench.admin().await;
    bench.tools(&admin).await;
    let agent = bench.agent().await;
    let session = Uuid::new_v4();
    let effect = grant(&agent, call(session, 1, "pay", &json!({}))).await;
    let request = v1::WatchEventsRequest { session_id: session.to_string(), ..Default::default() };
    let before = all(watch(&agent, request.clone()).await).await;
    let numbers: Vec<u64> = before.iter().map(|event| event.seq).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    let cursor = before.last().expect("events").cursor.clone();
    let follow = v1::WatchEventsRequest { cursor: cursor.clone(), follow: true, ..request.clone() };
    let mut following = watch(&agent, follow).await;
    commit(&agent, session, &effect, &json!({})).await.expect("commit");
    let event = next(&mut following).await;
    assert_eq!(event.seq, numbers.len() as u64 + 1);
    assert_eq!((event.to_state.as_str(), event.subject_id), ("committed", effect));
    // A cursor of another session, or of the organisation, means nothing here.
    let other = Uuid::new_v4();
    grant(&agent, call(other, 1, "pay", &json!({}))).await;
    let request =
        v1::WatchEventsRequest { session_id: other.to_string(), cursor, ..Default::default() };
    assert_eq!(reason(agent.sessions().watch_events(request).await), "CURSOR_INVALID");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_follows_its_own_sessions_only() {
    let bench = Bench::start().await;
    let admin = bench.admin().await;
    bench.tools(&admin).await;
    let agent = bench.agent().await;
    let answer = agent.sessions().watch_events(v1::WatchEventsRequest::default()).await;
    assert_eq!(reason(answer), "PERMISSION_DENIED");
    let session = Uuid::new_v4();
    grant(&agent, call(session, 1, "pay", &json!({}))).await;
    let operator = bench.client("operator", "olga").await;
    let events = all(watch(&operator, v1::WatchEventsRequest::default()).await).await;
    assert!(events.iter().all(|event| event.session_id == session.to_string()));
    assert!(!events.is_empty());
}

/// Inserts an event in a transaction of its own that stays open.
async fn open_late(bench: &Bench, session: Uuid) -> sqlx::Transaction<'static, sqlx::Postgres> {
    let mut late = bench.db.pool().begin().await.expect("begin");
    sqlx::query(
        "INSERT INTO undolog_effect_events (session_month, org_id, session_id, seq, kind, subject, \
         subject_id, actor, occurred_at) \
         SELECT session_month, org_id, session_id, 1000, 'late', 'session', session_id, 'test', \
         clock_timestamp() FROM undolog_sessions WHERE session_id = $1",
    )
    .bind(session)
    .execute(&mut *late)
    .await
    .expect("insert");
    late
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_commit_is_never_skipped() {
    let bench = Bench::start().await;
    let admin = bench.admin().await;
    bench.tools(&admin).await;
    let agent = bench.agent().await;
    let session = Uuid::new_v4();
    grant(&agent, call(session, 1, "pay", &json!({}))).await;
    let request = v1::WatchEventsRequest { follow: true, from_now: true, ..Default::default() };
    let mut following = watch(&admin, request).await;
    let late = open_late(&bench, session).await;
    // A transaction with a higher number commits first.
    let other = Uuid::new_v4();
    grant(&agent, call(other, 1, "pay", &json!({}))).await;
    let early = timeout(Duration::from_secs(2), following.message()).await;
    assert!(early.is_err(), "shown before a transaction below it was decided: {early:?}");
    late.commit().await.expect("the late commit");
    let mut kinds = Vec::new();
    while kinds.len() < 2 || !kinds.contains(&"late".to_owned()) {
        kinds.push(next(&mut following).await.kind);
    }
    assert_eq!(kinds[0], "late", "{kinds:?}");
    assert!(kinds.len() >= 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_history_of_an_organisation_pages_through_once() {
    let bench = Bench::start().await;
    let admin = bench.admin().await;
    bench.tools(&admin).await;
    let agent = bench.agent().await;
    let session = Uuid::new_v4();
    // More than one page of the reader.
    for step in 1..=260 {
        let effect = grant(&agent, call(session, step, "pay", &json!({}))).await;
        commit(&agent, session, &effect, &json!({})).await.expect("commit");
    }
    let events = all(watch(&admin, v1::WatchEventsRequest::default()).await).await;
    let numbers: Vec<u64> = events.iter().map(|event| event.seq).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    assert!(numbers.len() > 500);
    let middle = events[numbers.len() / 2].cursor.clone();
    let request = v1::WatchEventsRequest { cursor: middle, ..Default::default() };
    let rest = all(watch(&admin, request).await).await;
    assert_eq!(rest.len(), numbers.len() - numbers.len() / 2 - 1);
}

/// An engine on a server of the test's own, since what this test holds open holds up every stream.
#[tokio::test(flavor = "multi_thread")]
async fn a_history_that_another_database_holds_back_is_not_told_as_whole() {
    let server = PrivateCluster::start().await;
    let org = Org::create(server.pool(), "acme").await;
    let url = SecretString::from(server.url());
    let mut options =
        EngineOptions::new(StoreOptions::new(url, Some("undolog_app"), "engine under test"));
    options.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    options.http_listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    let shutdown = CancellationToken::new();
    let running = undolog_engine::serve(options, shutdown.clone()).await.expect("serve");
    let url = format!("http://{}", running.grpc_addr());
    let key = org.key(server.pool(), "admin", "root").await;
    let admin = Client::new(&url, Some(&key));

    // Something else in the cluster: another database, whose rows nobody of ours ever reads.
    let elsewhere = server.url().replace("/undolog", "/postgres");
    assert_ne!(elsewhere, server.url());
    let mut other = PgConnection::connect(&elsewhere).await.expect("connect");
    sqlx::raw_sql("BEGIN; SELECT pg_current_xact_id()").execute(&mut other).await.expect("begin");
    admin.sessions().begin(v1::BeginRequest::default()).await.expect("a session");

    // What a follower would be told of after a minute.
    let url = SecretString::from(server.url());
    let store = Store::connect(&StoreOptions::new(url, Some("undolog_app"), "a follower")).await;
    let store = store.expect("connect");
    let caller = Caller {
        org_id: org.id,
        principal: "root".to_owned(),
        role: Role::Admin,
        via_proxy: false,
    };
    let follower = Watch::open(&store, &caller, &WatchRequest::default()).await.expect("open");
    assert!(follower.is_held_back(&store).await.expect("a look"));

    let mut stream = watch(&admin, v1::WatchEventsRequest::default()).await;
    let end = loop {
        match timeout(Duration::from_secs(60), stream.message()).await.expect("an end in time") {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the history ended as if it were whole"),
            Err(status) => break status,
        }
    };
    assert_eq!(end.code(), tonic::Code::Unavailable, "{end:?}");
    assert!(end.message().contains("these are not all events"), "{end:?}");
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.expect("rollback");
    // A tick of the engine may be open just now.
    let shown = async {
        while follower.is_held_back(&store).await.expect("a look") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(30), shown).await.expect("nothing is held back any more");
    let events = all(watch(&admin, v1::WatchEventsRequest::default()).await).await;
    assert!(!events.is_empty());
    shutdown.cancel();
}
