//! Events over HTTP: every one once, also after a break.

use futures::StreamExt as _;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::bench::{Bench, Http};

/// One server-sent event.
#[derive(Debug, Clone, PartialEq)]
struct Sent {
    id: String,
    kind: String,
    data: Value,
}

/// Reads events until `until` says that it is enough, or the stream ends.
async fn read(response: reqwest::Response, until: impl Fn(&[Sent]) -> bool) -> Vec<Sent> {
    let mut bytes = response.bytes_stream();
    let (mut text, mut events) = (String::new(), Vec::new());
    while !until(&events) {
        let Some(chunk) = bytes.next().await else { break };
        text.push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
        while let Some((block, rest)) = text.split_once("\n\n") {
            events.extend(parsed(block));
            text = rest.to_owned();
        }
    }
    events
}

fn parsed(block: &str) -> Option<Sent> {
    let field = |name: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(name));
        line.map(|value| value.trim_start_matches([':', ' ']).to_owned())
    };
    let data = field("data")?;
    Some(Sent {
        id: field("id")?,
        kind: field("event")?,
        data: serde_json::from_str(&data).unwrap(),
    })
}

async fn open(agent: &Http, query: &str, last: Option<&str>) -> reqwest::Response {
    let mut request = agent.request(Method::GET, &format!("/events?{query}"));
    if let Some(last) = last {
        request = request.header("Last-Event-ID", last);
    }
    let response = request.send().await.unwrap();
    assert_eq!(response.status().as_u16(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    response
}

async fn step(agent: &Http, session: Uuid, step: u32) {
    let asked = json!({"session_id": session, "tool_name": "charge", "step_index": step});
    let executed = agent.call(asked).await.is(200).body;
    let path = format!("/effects/{}/commit", executed["effect_id"].as_str().unwrap());
    agent.put(&path, json!({"session_id": session, "result": step})).await.is(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_comes_back_misses_nothing() {
    let bench = Bench::start().await;
    let agent = bench.agent().await;
    let session = agent.begin().await;
    step(&agent, session, 1).await;
    let query = format!("session_id={session}");
    let history = read(open(&agent, &format!("{query}&follow=false"), None).await, |_| false).await;
    assert!(history.iter().any(|event| event.kind == "committed"), "{history:?}");
    let seen = read(open(&agent, &query, None).await, |events| events.len() >= 2).await;
    assert_eq!(seen[..2], history[..2]);

    let following = open(&agent, &query, Some(&seen[1].id)).await;
    step(&agent, session, 2).await;
    let whole = history.len() - 2 + 3;
    let rest = read(following, |events| events.len() >= whole).await;
    let mut all: Vec<u64> =
        seen[..2].iter().chain(&rest).map(|e| e.data["seq"].as_u64().unwrap()).collect();
    all.truncate(history.len() + 3);
    let expected: Vec<u64> = (1..=all.len() as u64).collect();
    assert_eq!(all, expected, "each event once, in order");

    agent.get("/events").await.refused(403, "PERMISSION_DENIED");
    let op = bench.client("operator", "olga").await;
    let wrong = op.request(Method::GET, "/events").header("Last-Event-ID", "nonsense");
    op.send(wrong).await.refused(400, "CURSOR_INVALID");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_holds_up_nobody() {
    let bench = Bench::start().await;
    let agent = bench.agent().await;
    let session = agent.begin().await;
    let op = bench.client("operator", "olga").await;
    let mut unread = Vec::new();
    for _ in 0..8 {
        unread.push(open(&op, "from_now=true", None).await);
    }
    for number in 1..=40 {
        step(&agent, session, number).await;
    }
    agent.post(&format!("/sessions/{session}/complete"), json!({})).await.is(200);
    drop(unread);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_proxy_ends_its_streams() {
    let mut bench = Bench::start().await;
    let op = bench.client("operator", "olga").await;
    let stream = open(&op, "", None).await;
    bench.proxy.process.term();
    read(stream, |_| false).await;
    let status = bench.proxy.process.wait_exit(undolog_tests::SOON).await;
    assert!(status.success(), "{status}");
}
