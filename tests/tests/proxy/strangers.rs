//! Callers without a key, and callers who take more than their share: nobody else notices them.

use std::{collections::BTreeMap, time::Duration};

use futures::{StreamExt as _, future::join_all, stream};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use undolog_tests::{eventually, within};
use uuid::Uuid;

use super::bench::{Bench, Http};

/// Longer than any time limit for a request's head.
const CUT_OFF: Duration = Duration::from_secs(40);

fn stranger(bench: &Bench, key: impl Into<String>) -> Http {
    Http { key: Some(key.into()), ..Http::new(&bench.proxy.url(""), None) }
}

async fn connect(url: &str) -> TcpStream {
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    TcpStream::connect(address).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_valid_key_is_served_whatever_strangers_present() {
    let bench = Bench::start().await;
    let known = bench.agent().await;
    known.get("/sessions").await.is(200);
    let other = stranger(&bench, "");
    let attempts = (0..400).map(|n: usize| {
        let key = if n.is_multiple_of(2) { "x".to_owned() } else { format!("ulk_{n:048x}") };
        let request = other.client.get(bench.proxy.url("/sessions")).header("x-api-key", key);
        async move { super::bench::answer(request.send().await.unwrap()).await }
    });
    let answers: Vec<_> = stream::iter(attempts).buffer_unordered(32).collect().await;
    let mut counted = BTreeMap::<u16, usize>::new();
    for answer in answers {
        answer.documented();
        *counted.entry(answer.status.as_u16()).or_default() += 1;
    }
    assert!(counted.keys().all(|status| [401, 429].contains(status)), "{counted:?}");
    assert!(counted[&401] > 0 && counted[&429] > 0, "{counted:?}");
    // The same address, with a key that this proxy knows and with one that it has never seen.
    known.get("/sessions").await.is(200);
    bench.client("agent", "agent-2").await.get("/sessions").await.is(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_is_refused_before_its_body_is_read() {
    let bench = Bench::start().await;
    let mut stream = connect(&bench.proxy.url("")).await;
    let head = "POST /mcp/tool_call HTTP/1.1\r\nhost: x\r\nx-api-key: ulk_none\r\n\
                content-length: 9900000\r\n\r\n{\"session_id\":";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    tokio::time::timeout(Duration::from_secs(20), read).await.expect("an end").unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    assert!(answer.to_ascii_lowercase().contains("\r\nconnection: close\r\n"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_send_no_request_are_closed() {
    let bench = Bench::start().await;
    let engine = &bench.world.engines[0];
    let places = [
        ("the proxy", bench.proxy.url("")),
        ("the engine's probes", engine.http_url("")),
        ("the worker's probes", bench.world.workers[0].http_url("")),
        ("the engine", engine.grpc_url()),
    ];
    let closed = places.iter().flat_map(|(what, url)| {
        // Nothing at all, and half a head. HTTP/2 has no heads to be halved.
        let heads = if *what == "the engine" { vec![""] } else { vec!["", "GET / HTTP/1.1\r\nho"] };
        heads.into_iter().map(move |head| async move {
            let mut stream = connect(url).await;
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut rest = Vec::new();
            let ended = tokio::time::timeout(CUT_OFF, stream.read_to_end(&mut rest)).await;
            assert!(ended.is_ok(), "{what} keeps a connection after {head:?}");
        })
    });
    join_all(closed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_calls_of_one_key_are_in_nobody_s_way() {
    let bench = Bench::start().await;
    let (agent, other) = (bench.agent().await, bench.client("agent", "agent-2").await);
    other.get("/sessions").await.is(200);
    let session = agent.begin().await;
    let asked = json!({"session_id": session, "tool_name": "wire", "step_index": 1,
        "args": {}, "wait_ms": 25_000});
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..1_100 {
        let (agent, asked) = (agent.clone(), asked.clone());
        waiting.spawn(async move { agent.call(asked).await });
    }
    // Whoever finds no place hears so at once.
    let refused = waiting.join_next().await.unwrap().unwrap();
    refused.refused(429, "RATE_LIMITED");
    let own = other.begin().await;
    other.post(&format!("/sessions/{own}/heartbeat"), json!({})).await.is(200);
    within(Duration::from_secs(10), "another key is served", || async {
        if other.get("/sessions").await.status == 200 { Ok(()) } else { Err("refused") }
    })
    .await;
    assert!(!waiting.is_empty(), "the others still wait");
}

#[tokio::test(flavor = "multi_thread")]
async fn replays_that_nobody_reads_are_in_nobody_s_way() {
    let bench = Bench::start().await;
    let (agent, other) = (bench.agent().await, bench.client("agent", "agent-2").await);
    other.get("/sessions").await.is(200);
    let session = Uuid::new_v4();
    for step in 1..=6 {
        super::sessions::run(&bench, &agent, session, step).await;
    }
    sqlx::raw_sql(
        "UPDATE undolog_effect_log SET result_snapshot_raw =
           convert_to('{\"r\":\"' || repeat('a', 3900000) || '\"}', 'UTF8')",
    )
    .execute(bench.world.pool())
    .await
    .unwrap();
    let mut unread = Vec::new();
    for _ in 0..8 {
        let address = bench.proxy.url("").trim_start_matches("http://").to_owned();
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4_096).unwrap();
        let mut stream = socket.connect(address.parse().unwrap()).await.unwrap();
        let key = agent.key.as_deref().unwrap();
        let head = format!(
            "GET /sessions/{session}/replay HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut begun = [0; 12];
        stream.read_exact(&mut begun).await.unwrap();
        assert_eq!(&begun, b"HTTP/1.1 200");
        unread.push(stream);
    }
    // What the engine may send ahead has been sent.
    tokio::time::sleep(Duration::from_millis(500)).await;
    for _ in 0..10 {
        let asked = other.get("/sessions");
        let answer = tokio::time::timeout(Duration::from_secs(5), asked).await;
        answer.expect("an answer, whoever does not read").is(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_leaves_event_streams_to_the_others() {
    let bench = Bench::start().await;
    let (one, two) = (bench.client("admin", "a").await, bench.client("admin", "b").await);
    let mut open = Vec::new();
    let refused = loop {
        let answer = one.request(Method::GET, "/events").send().await.unwrap();
        if answer.status() != 200 {
            break answer.status().as_u16();
        }
        open.push(answer);
        assert!(open.len() < 256, "one key has all streams");
    };
    assert_eq!(refused, 429);
    assert_eq!(two.request(Method::GET, "/events").send().await.unwrap().status(), 200);
    open.pop();
    eventually("a place is free again", || async {
        let answer = one.request(Method::GET, "/events").send().await.unwrap();
        if answer.status() == 200 { Ok(()) } else { Err(answer.status()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_is_an_object_sent_as_it_is() {
    let bench = Bench::start().await;
    let agent = bench.agent().await;
    let session = agent.begin().await;
    let rows = bench.rows().await;
    // The fields of a call in their order, as a derived form would take them.
    let array = json!([
        session,
        "charge",
        null,
        null,
        1,
        null,
        {},
        null,
        null,
        null,
        null,
        null,
        null,
        null
    ]);
    agent.call(array).await.refused(400, "INVALID_ARGUMENT");
    let nested = json!({"session_id": session, "tool_name": "charge", "step_index": 1,
        "compensation": ["undo_charge", null, {}, null, null]});
    agent.call(nested).await.refused(400, "INVALID_ARGUMENT");
    let beat = json!({"grants": [[session, 1]]});
    let beat = agent.post(&format!("/sessions/{session}/heartbeat"), beat).await;
    beat.refused(400, "INVALID_ARGUMENT");
    let call = json!({"session_id": session, "tool_name": "charge", "step_index": 1}).to_string();
    let marked = agent.request(Method::POST, "/mcp/tool_call").body(format!("\u{feff}{call}"));
    let marked = agent.send(marked).await;
    assert!(marked.text.contains("byte order mark"), "{}", marked.text);
    marked.refused(400, "INVALID_ARGUMENT");
    let packed = agent.request(Method::POST, "/mcp/tool_call").header("content-encoding", "gzip");
    let packed = agent.send(packed.body(call)).await;
    assert_eq!(packed.status, 415, "{}", packed.text);
    assert_eq!(bench.rows().await, rows);
    let _: Value = agent.get("/openapi.json").await.is(200).body;
}
