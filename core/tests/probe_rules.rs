//! Probes: what can be asked, and what an answer says.

use undolog_core::{
    json::{Node, parse_strict},
    probe::{Answer, Probe},
};
use uuid::Uuid;

fn node(text: &str) -> Node {
    parse_strict(text.as_bytes()).expect("JSON")
}

const PROBE: &str = r#"{"kind":"http","method":"GET",
    "endpoint":"https://pay.example/by-key/{effect_id}?order={args.order}",
    "headers":{"Authorization":"Bearer {secret:TOKEN}"},"timeout_ms":5000,
    "happened":{"status":[200,201],"result":"/charges/0"},"did_not_happen":{"status":[404]}}"#;

/// The probe with another text in one place.
fn with(from: &str, to: &str) -> String {
    assert!(PROBE.contains(from), "{from}");
    PROBE.replacen(from, to, 1)
}

#[test]
fn a_question_is_filled_in_without_a_key() {
    let probe = Probe::parse(&node(PROBE)).expect("a probe");
    let id = Uuid::nil();
    let call = probe.render(&node(r#"{"order":"a/b"}"#), id, id).expect("filled in");
    assert_eq!(call.shown_url(), format!("https://pay.example/by-key/{id}?order=a%2Fb"));
    let headers: Vec<String> = call.headers.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(headers, ["Authorization"]);
    assert!(call.body.is_none());
    probe.render(&node("{}"), id, id).expect_err("an argument is missing");
}

#[test]
fn an_answer_says_one_of_three_things() {
    let probe = Probe::parse(&node(PROBE)).expect("a probe");
    let read = |status, body: &[u8]| probe.read(status, body, false);
    let happened = Answer::Happened(node(r#"{"id":1e2}"#));
    assert_eq!(read(200, br#"{"charges":[{"id":1e2}]}"#), happened);
    assert_eq!(read(404, b""), Answer::DidNotHappen);
    for (status, body) in [
        (500, &b"{}"[..]),
        (204, b""),
        (200, b"{}"),
        (200, b"no json"),
        (201, br#"{"charges":[]}"#),
    ] {
        assert!(matches!(read(status, body), Answer::CannotTell(_)), "{status}");
    }
    let cut = probe.read(200, br#"{"charges":[1]}"#, true);
    assert!(matches!(cut, Answer::CannotTell(_)), "{cut:?}");
    let bare = Probe::parse(&node(&with(r#","result":"/charges/0""#, ""))).expect("a probe");
    assert_eq!(bare.read(200, b"anything", true), Answer::Happened(Node::Null));
    let whole = Probe::parse(&node(&with("/charges/0", ""))).expect("a probe");
    assert_eq!(whole.read(200, b"[1]", false), Answer::Happened(node("[1]")));
}

#[test]
fn what_cannot_be_asked_is_refused() {
    for bad in [
        "[]".to_owned(),
        with("{effect_id}", "{result.id}"),
        with("{effect_id}", "{undo_id}"),
        with("{effect_id}", "{comp.id}"),
        with("GET", "DELETE"),
        with("[200,201]", "[]"),
        with("[200,201]", "[200,404]"),
        with("[404]", "[99]"),
        with("/charges/0", "charges"),
        with("5000", "60000"),
        with(r#""did_not_happen":{"status":[404]}"#, r#""repeatable":true"#),
        with(r#""did_not_happen":{"status":[404]}"#, r#""did_not_happen":{"result":""}"#),
        with("https://pay.example", "{args.host}"),
    ] {
        assert!(Probe::parse(&node(&bad)).is_err(), "{bad}");
    }
    let post = with("GET", "POST").replacen(
        "\"timeout",
        "\"arg_mapping\":{\"k\":\"{args.k}\"},\"timeout",
        1,
    );
    let probe = Probe::parse(&node(&post)).expect("POST with a body");
    let id = Uuid::nil();
    let call = probe.render(&node(r#"{"order":1,"k":[2]}"#), id, id).expect("filled in");
    assert_eq!(call.body, Some(node(r#"{"k":[2]}"#)));
}
