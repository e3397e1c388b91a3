//! Malformed requests: each is refused with the documented body, none is a fault, none leaves a
//! row.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::bench::Bench;

const SESSION: &str = "00000000-0000-4000-8000-000000000001";

/// Texts that are no tool call at all.
fn no_objects() -> Vec<Vec<u8>> {
    [
        "",
        "{}",
        "null",
        "[]",
        "1",
        "\"text\"",
        "{",
        "}",
        "{\"tool_name\"",
        "nul",
        "{]",
        "{\"tool_name\":}",
        "{'tool_name':'charge'}",
        "{\"tool_name\":\"charge\",}",
        "{\"tool_name\":\"charge\"} trailing",
        "\u{feff}{\"tool_name\":\"charge\"}",
        "{\"a\":NaN}",
        "[[[[",
        "{\"tool_name\":\"charge\",\"tool_name\":\"charge\"}",
    ]
    .into_iter()
    .map(|text| text.as_bytes().to_vec())
    .collect()
}

/// Fields with values that they cannot have.
fn wrong_fields() -> Vec<Vec<u8>> {
    let valid = json!({"session_id": SESSION, "tool_name": "charge", "step_index": 1, "args": {}});
    let fields = [
        ("session_id", json!(1)),
        ("session_id", json!("not a uuid")),
        ("session_id", json!([])),
        ("session_id", json!("")),
        ("session_id", json!({"$ne": null})),
        ("tool_name", json!(null)),
        ("tool_name", json!(7)),
        ("tool_name", json!("")),
        ("tool_name", json!("charge\u{0}")),
        ("tool_name", json!("x".repeat(10_000))),
        ("tool_name", json!("charge'; DROP TABLE undolog_sessions; --")),
        ("tool_version", json!(1)),
        ("tool_version", json!("one")),
        ("tool_version", json!("1.0.0\u{0}")),
        ("tool_id", json!("x")),
        ("step_index", json!(-1)),
        ("step_index", json!(1.5)),
        ("step_index", json!("1")),
        ("step_index", json!(4_294_967_296_u64)),
        ("step_index", json!(2_147_483_648_u64)),
        ("step_key", json!(3)),
        ("step_key", json!("both")),
        ("args", json!([])),
        ("args", json!("text")),
        ("args", json!(3)),
        ("signature", json!("short")),
        ("signature", json!("G".repeat(64))),
        ("grant_token", json!({})),
        ("grant_token", json!("t".repeat(1_000))),
        ("wait_ms", json!(-5)),
        ("wait_ms", json!("long")),
        ("heartbeats", json!("yes")),
        ("accepts_approved_args", json!(1)),
        ("agent_context", json!("c".repeat(100_000))),
        ("compensation", json!("undo")),
        ("compensation", json!({"fn_version": "1.0.0"})),
        ("compensation", json!({"fn_name": "undo_charge", "max_retries": -1})),
        ("compensation", json!({"fn_name": "another"})),
        ("unknown_field", json!(true)),
        ("__proto__", json!({})),
    ];
    let with = |(field, value): (&str, Value)| {
        let mut body = valid.clone();
        body[field] = value;
        body.to_string().into_bytes()
    };
    fields.into_iter().map(with).collect()
}

/// Arguments that no signature can be made of.
fn wrong_args() -> Vec<Vec<u8>> {
    let with = |args: &str| {
        format!(r#"{{"session_id":"{SESSION}","tool_name":"charge","step_index":1,"args":{args}}}"#)
    };
    let mut bodies = Vec::new();
    for args in [
        r#"{"a":1,"a":2}"#,
        r#"{"a":"\ud800"}"#,
        r#"{"a":123456789012345678901234567890}"#,
        r#"{"a":1e999}"#,
        r#"{"a":01}"#,
        r#"{"a":+1}"#,
        r#"{"a":.5}"#,
        "{\"a\":\"\u{1}\"}",
        r#"{"a":"\x41"}"#,
        &format!("{{\"a\":{}1{}}}", "[".repeat(200), "]".repeat(200)),
        &format!("{{\"a\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000)),
        &format!("{{\"a\":{}", "{\"a\":".repeat(50_000)),
        &format!("{{\"a\":\"{}\"}}", "x".repeat(5 * 1024 * 1024)),
        &format!("{{\"a\":\"{}\"}}", "x".repeat(12 * 1024 * 1024)),
    ] {
        bodies.push(with(args).into_bytes());
    }
    for bytes in [&b"\xff\xfe"[..], b"\xc3\x28", b"\xed\xa0\x80", b"\x00", b"\xf0\x9f\x92"] {
        let mut body = with("{\"a\":\"").into_bytes();
        body.truncate(body.len() - 1);
        body.extend_from_slice(bytes);
        body.extend_from_slice(b"\"}}");
        bodies.push(body);
    }
    bodies
}

/// Other routes with what they do not take.
fn others() -> Vec<(Method, String, String)> {
    let id = Uuid::from_u128(7);
    let bad = |method: Method, path: String, body: Value| (method, path, body.to_string());
    vec![
        bad(Method::PUT, format!("/effects/{id}/commit"), json!({})),
        bad(Method::PUT, format!("/effects/{id}/commit"), json!({"result": 1})),
        bad(Method::PUT, "/effects/x/commit".into(), json!({"session_id": id, "result": 1})),
        bad(
            Method::PUT,
            format!("/effects/{id}/commit"),
            json!({"session_id": id, "result": 1, "attempt": -1}),
        ),
        bad(Method::PUT, "/effects/%ff/commit".into(), json!({"session_id": id, "result": 1})),
        bad(Method::PUT, "/effects/%00/fail".into(), json!({"session_id": id})),
        bad(
            Method::PUT,
            format!("/effects/{id}/fail"),
            json!({"session_id": id, "effect": "perhaps"}),
        ),
        bad(Method::PUT, format!("/effects/{id}/fail"), json!({"session_id": id, "error": 5})),
        bad(Method::POST, format!("/effects/{id}/commit"), json!({})),
        bad(Method::POST, format!("/effects/{id}/resolve"), json!({"as": "done"})),
        bad(Method::POST, "/sessions".into(), json!({"lease_seconds": 1})),
        bad(Method::POST, "/sessions".into(), json!({"lease_seconds": "long"})),
        bad(Method::POST, "/sessions".into(), json!({"metadata": []})),
        bad(Method::POST, "/sessions".into(), json!({"on_unknown": "pray"})),
        bad(Method::POST, "/sessions".into(), json!({"session_id": "1"})),
        bad(Method::GET, "/sessions?page_size=-1".into(), json!({})),
        bad(Method::GET, "/sessions?page_size=many".into(), json!({})),
        bad(Method::GET, "/sessions?page_token=forged".into(), json!({})),
        bad(Method::GET, "/sessions?state=asleep".into(), json!({})),
        bad(Method::GET, "/sessions?no_such=1".into(), json!({})),
        bad(Method::GET, "/sessions?page_size=1&page_size=2".into(), json!({})),
        bad(Method::GET, "/sessions/x".into(), json!({})),
        bad(Method::GET, format!("/sessions/{id}/replay"), json!({})),
        bad(Method::POST, format!("/sessions/{id}/heartbeat"), json!({"grants": [{}]})),
        bad(Method::POST, format!("/sessions/{id}/heartbeat"), json!({"grants": 1})),
        bad(Method::POST, format!("/sessions/{id}/rollback"), json!({"to_step": -1})),
        bad(Method::POST, format!("/sessions/{id}/complete"), json!({"accept_unknown": "no"})),
        bad(Method::DELETE, format!("/sessions/{id}"), json!({})),
        bad(Method::PATCH, "/tools/charge".into(), json!({})),
        bad(Method::PUT, "/tools/charge".into(), json!({"tier": "harmless"})),
        bad(Method::PUT, "/tools/new".into(), json!({})),
        bad(Method::PUT, "/tools/new".into(), json!({"tier": "safe", "tool_schema": {"type": 5}})),
        bad(Method::PUT, "/tools/new".into(), json!({"tier": "safe", "tool_version": "x"})),
        bad(Method::PUT, "/tools/new".into(), json!({"tier": "safe", "risk_tags": "all"})),
        bad(Method::PUT, format!("/tools/{}", "n".repeat(300)), json!({"tier": "safe"})),
        bad(Method::PUT, "/tools/a%00b".into(), json!({"tier": "safe"})),
        bad(Method::GET, "/approvals/x".into(), json!({})),
        bad(Method::GET, "/approvals?state=open".into(), json!({})),
        bad(Method::GET, "/events?session_id=x".into(), json!({})),
        bad(Method::GET, "/events?cursor=forged".into(), json!({})),
        bad(Method::GET, "/events?follow=perhaps".into(), json!({})),
        bad(Method::GET, "/mcp/tool_call".into(), json!({})),
        bad(Method::TRACE, "/sessions".into(), json!({})),
        bad(Method::from_bytes(b"BREW").unwrap(), "/sessions".into(), json!({})),
        bad(Method::GET, "//".into(), json!({})),
        bad(Method::GET, "/sessions/../tools/..".into(), json!({})),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn each_is_refused_as_documented_and_leaves_no_row() {
    let bench = Bench::start().await;
    let agent = bench.agent().await;
    let before = bench.rows().await;
    let mut seen = 0;
    for body in [no_objects(), wrong_fields(), wrong_args()].concat() {
        let shown = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
        let request = agent.request(Method::POST, "/mcp/tool_call").body(body);
        let answer = agent.send(request).await;
        assert!(answer.status.is_client_error(), "{}: {} {shown}", answer.status, answer.text);
        answer.documented();
        seen += 1;
    }
    for (method, path, body) in others() {
        let request = agent.request(method.clone(), &path);
        let request = if method == Method::GET { request } else { request.body(body.clone()) };
        let answer = agent.send(request).await;
        let what = format!("{method} {path} {body}: {} {}", answer.status, answer.text);
        assert!(answer.status.is_client_error(), "{what}");
        answer.documented();
        seen += 1;
    }
    assert!(seen >= 100, "only {seen}");
    assert_eq!(bench.rows().await, before, "a refused request left a row");
    agent.get("/ready").await.is(200);
}

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(bound).unwrap()).unwrap()
    }
}

/// A tool call of a tool that does not exist, with some bytes changed, cut out or doubled.
fn mutated(dice: &mut Dice) -> Vec<u8> {
    let rest = r#""args":{"a":[1.5,"\u00e9",null]},"wait_ms":0,"heartbeats":false"#;
    let undo = r#""compensation":{"fn_name":"undo","args":{"x":"{x}"}}"#;
    let valid =
        format!(r#"{{"session_id":"{SESSION}","tool_name":"nope","step_index":1,{rest},{undo}}}"#);
    let mut bytes = valid.into_bytes();
    for _ in 0..=dice.below(6) {
        let at = dice.below(bytes.len());
        let end = (at + 1 + dice.below(12)).min(bytes.len());
        match dice.below(4) {
            0 => bytes[at] = u8::try_from(dice.below(256)).unwrap(),
            1 if end - at < bytes.len() => drop(bytes.drain(at..end)),
            2 => {
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
            _ => bytes[at] = b"{}[]\",:-0\\"[dice.below(10)],
        }
    }
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn three_thousand_mutations_are_refused_too() {
    let bench = Bench::start().await;
    let agent = bench.agent().await;
    let before = bench.rows().await;
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    for number in 0..3_000 {
        let body = mutated(&mut dice);
        let shown = String::from_utf8_lossy(&body).into_owned();
        let request = agent.request(Method::POST, "/mcp/tool_call").body(body);
        let answer = agent.send(request).await;
        let what = format!("{number}: {} {} {shown}", answer.status, answer.text);
        assert!(answer.status.is_client_error(), "{what}");
        answer.documented();
    }
    assert_eq!(bench.rows().await, before, "a refused request left a row");
}

/// Writes bytes and reads what comes back until the connection ends.
fn raw(bench: &Bench, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(bench.proxy.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(bytes).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    // A reset after an answer is as good as an end.
    let _end = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_http_is_no_fault_and_leaves_no_row() {
    let bench = Bench::start().await;
    let agent = bench.agent().await;
    let key = agent.key.clone().unwrap();
    let before = bench.rows().await;
    let head = format!("POST /mcp/tool_call HTTP/1.1\r\nHost: x\r\nX-Api-Key: {key}\r\n");
    let cut = format!("{head}Content-Length: 500\r\n\r\n{{\"tool_name\":\"charge\"");
    let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\nzz\r\n{{}}\r\n");
    let lying = format!("{head}Content-Length: 99999999999\r\n\r\n{{}}");
    let expecting = format!("{head}Content-Length: 2\r\nX-UndoLog-Org-Id: \u{e9}\r\n\r\n{{}}");
    for text in [
        "\r\n\r\n".to_owned(),
        "GARBAGE\r\n\r\n".to_owned(),
        "GET / HTTP/9.9\r\n\r\n".to_owned(),
        format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(100_000)),
        format!("GET / HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n", "a".repeat(1_000_000)),
        cut,
        chunked,
        lying,
        expecting,
    ] {
        let answer = raw(&bench, text.as_bytes());
        assert!(!answer.contains("HTTP/1.1 5"), "{}: {answer}", &text[..text.len().min(80)]);
    }
    assert_eq!(bench.rows().await, before);
    agent.get("/ready").await.is(200);
}
