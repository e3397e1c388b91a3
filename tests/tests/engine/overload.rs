//! Nobody takes an engine for himself: shares per organisation and key, and clients that stop
//! reading.

use std::collections::BTreeMap;

use serde_json::json;
use tonic::transport::Endpoint;
use undolog_proto::v1::{self, undo_log_sessions_client::UndoLogSessionsClient};
use undolog_tests::world::{Client, Org};
use uuid::Uuid;

use super::bench::{Bench, call, commit, grant, reason};

/// What one key may have of an engine's 256 event streams, and its organisation.
const OF_KEY: usize = 64;
const OF_ORG: usize = 128;

type Stream = tonic::Streaming<v1::Event>;

async fn follow(client: &Client) -> Result<Stream, tonic::Status> {
    let request = v1::WatchEventsRequest { follow: true, ..Default::default() };
    Ok(client.sessions().watch_events(request).await?.into_inner())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_and_one_organisation_leave_streams_to_the_others() {
    let bench = Bench::start().await;
    let admin = bench.admin().await;
    bench.tools(&admin).await;
    let mut streams = Vec::new();
    let mut refused = BTreeMap::<String, usize>::new();
    for _ in 0..3 {
        let client = bench.client("operator", "op").await;
        for _ in 0..=OF_KEY {
            match follow(&client).await {
                Ok(stream) => streams.push(stream),
                other => *refused.entry(reason(other)).or_default() += 1,
            }
        }
    }
    assert_eq!(streams.len(), OF_ORG);
    let expected = 3 * (OF_KEY + 1) - OF_ORG;
    assert_eq!(refused, [("RATE_LIMITED".to_owned(), expected)].into());
    let other = Org::create(bench.db.pool(), "other").await;
    follow(&bench.client_of(&other, "operator", "op").await).await.expect("its own share");
    // Calls have places of their own.
    let (agent, session) = (bench.agent().await, Uuid::new_v4());
    let effect = grant(&agent, call(session, 1, "pay", &json!({}))).await;
    commit(&agent, session, &effect, &json!({})).await.expect("commit");
    streams.pop();
    undolog_tests::eventually("a place is free again", || async {
        follow(&bench.client("operator", "op").await).await.map(drop).map_err(|s| s.to_string())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stops_reading_does_not_hold_a_stopping_engine_up() {
    let mut bench = Bench::start().await;
    let admin = bench.admin().await;
    bench.tools(&admin).await;
    let (agent, session) = (bench.agent().await, Uuid::new_v4());
    grant(&agent, call(session, 1, "pay", &json!({}))).await;
    // More than fits between an engine and a client that does not read.
    sqlx::query(
        "INSERT INTO undolog_effect_events (session_month, org_id, session_id, seq, kind, subject,
             subject_id, actor, occurred_at, detail)
         SELECT session_month, org_id, session_id, event_seq + n, 'note', 'session', session_id,
             'test', now(), jsonb_build_object('text', repeat('x', 10000))
         FROM undolog_sessions, generate_series(1, 1000) AS n WHERE session_id = $1",
    )
    .bind(session)
    .execute(bench.db.pool())
    .await
    .expect("many events");
    let channel = Endpoint::from_shared(bench.url.clone())
        .expect("a URL")
        .initial_stream_window_size(Some(65_535))
        .connect()
        .await
        .expect("a connection");
    let mut request = tonic::Request::new(v1::WatchEventsRequest {
        session_id: session.to_string(),
        follow: true,
        ..Default::default()
    });
    let key = bench.org.key(bench.db.pool(), "agent", "agent-1").await;
    request.metadata_mut().insert("x-api-key", key.parse().expect("a key"));
    let stream = UndoLogSessionsClient::new(channel).watch_events(request).await;
    let mut stream = stream.expect("a stream").into_inner();
    stream.message().await.expect("no error").expect("the first event");

    bench.shutdown.cancel();
    bench.running.take().expect("it runs").stopped().await.expect("stopped in time");
    let mut after = stream.message().await;
    while let Ok(Some(_)) = after {
        after = stream.message().await;
    }
    assert!(after.is_err(), "a stream that was cut off must not look whole: {after:?}");
}
