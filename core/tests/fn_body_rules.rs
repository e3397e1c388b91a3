//! Registrations of compensations, and the calls that they make.

use undolog_core::answer::{Heard, Rules};
use undolog_core::fn_body::{
    BodyKind, FnBody, Method, OnMissingResult, OnUnknown, RenderedCall, ResolveError,
};
use undolog_core::json::{Node, parse_lossless, parse_strict};
use undolog_core::retry::CallOutcome;
use undolog_core::template::{Context, RenderError, render_descriptor};
use uuid::Uuid;

fn node(text: &str) -> Node {
    parse_lossless(text.as_bytes()).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn body(text: &str) -> FnBody {
    FnBody::parse(&node(text)).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn refused(text: &str) -> String {
    FnBody::parse(&node(text)).map_or_else(|e| e.to_string(), |_| panic!("{text} is accepted"))
}

fn at(endpoint: &str) -> FnBody {
    body(&format!(r#"{{"endpoint":{}}}"#, serde_json::Value::from(endpoint)))
}

fn render(body: &FnBody, args: &str, result: Option<&str>) -> Result<RenderedCall, RenderError> {
    let (args, result) = (node(args), result.map(node));
    let comp = node(r#"{"soft":true,"id":"c/1"}"#);
    body.render(&Context {
        args: &args,
        result: result.as_ref(),
        comp: &comp,
        session_id: Uuid::from_u128(1),
        effect_id: Uuid::from_u128(2),
        undo_id: Uuid::from_u128(3),
    })
}

fn url(endpoint: &str, args: &str) -> Result<String, RenderError> {
    render(&at(endpoint), args, None).map(|call| call.shown_url())
}

const DOCUMENTED: &str = r#"{"kind":"http","method":"POST",
    "endpoint":"https://billing.example/charges/{result.charge_id}/refund",
    "headers":{"Authorization":"Bearer {secret:BILLING_TOKEN}"},
    "arg_mapping":{"amount":"{args.amount}","note":"undo of {effect_id}"},
    "idempotency_key_header":"Idempotency-Key","timeout_ms":10000,"done_statuses":[404,410],
    "on_missing_result":"auto","on_unknown":"compensate","repeatable":false}"#;

#[test]
fn the_documented_example_makes_its_call() {
    let body = body(DOCUMENTED);
    assert!(body.needs_result() && !body.uses_comp());
    assert_eq!(body.secret_names(), ["BILLING_TOKEN"]);
    assert_eq!(body.origin(), "https://billing.example");
    let call = render(&body, r#"{"amount":12.50}"#, Some(r#"{"charge_id":"ch 1/2"}"#))
        .expect("everything is there");
    assert_eq!(call.shown_url(), "https://billing.example/charges/ch%201%2F2/refund");
    let sent = call.resolve(&|name| (name == "BILLING_TOKEN").then(|| "s3cret".to_owned()));
    let sent = sent.expect("the secret exists");
    assert_eq!(sent.method, Method::Post);
    let key = Uuid::from_u128(3).to_string();
    let headers = [
        ("Authorization", "Bearer s3cret"),
        ("Idempotency-Key", &key),
        ("Content-Type", "application/json"),
    ];
    let headers: Vec<_> = headers.into_iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
    assert_eq!(sent.headers, headers);
    let note = format!(r#"{{"amount":12.50,"note":"undo of {}"}}"#, Uuid::from_u128(2));
    assert_eq!(sent.body.as_deref(), Some(note.as_str()));
}

#[test]
fn the_defaults_are_the_documented_ones() {
    let body = at("https://a.example");
    assert_eq!((body.method, body.timeout_ms), (Method::Post, 10_000));
    assert_eq!(body.idempotency_key_header, "Idempotency-Key");
    assert_eq!(body.on_missing_result, OnMissingResult::Auto);
    assert_eq!(body.on_unknown, OnUnknown::Compensate);
    assert!(!body.repeatable && !body.needs_result());
    assert_eq!((&body.rules, body.body), (&Rules::default(), BodyKind::Json));
    let call = render(&body, "{}", None).expect("nothing to fill in");
    assert_eq!(call.shown_url(), "https://a.example/");
    assert_eq!(call.body, Some(node(r#"{"soft":true,"id":"c/1"}"#)), "the compensation's args");
    assert!(body.uses_comp());
}

#[test]
fn what_a_registration_cannot_say() {
    let rows = [
        ("[]", "object"),
        ("{}", "endpoint"),
        (r#"{"endpoint":1}"#, "endpoint"),
        (r#"{"endpoint":"https://a.example","retries":3}"#, "no field \"retries\""),
        (r#"{"endpoint":"https://a.example","kind":"grpc"}"#, "kind"),
        (r#"{"endpoint":"https://a.example","method":"TRACE"}"#, "method"),
        (r#"{"endpoint":"https://a.example","method":"post"}"#, "method"),
        (r#"{"endpoint":"https://a.example","method":"GET","arg_mapping":{}}"#, "arg_mapping"),
        (r#"{"endpoint":"https://a.example","timeout_ms":0}"#, "timeout_ms"),
        (r#"{"endpoint":"https://a.example","timeout_ms":600001}"#, "timeout_ms"),
        (r#"{"endpoint":"https://a.example","timeout_ms":1.5}"#, "timeout_ms"),
        (r#"{"endpoint":"https://a.example","done_statuses":[99]}"#, "done_statuses"),
        (r#"{"endpoint":"https://a.example","done_statuses":404}"#, "done_statuses"),
        (r#"{"endpoint":"https://a.example","retry_statuses":[99]}"#, "retry_statuses"),
        (
            r#"{"endpoint":"https://a.example","done_statuses":[409],"retry_statuses":[409]}"#,
            "retry_statuses",
        ),
        (r#"{"endpoint":"https://a.example","not_done":"skip"}"#, "not_done"),
        (r#"{"endpoint":"https://a.example","done_when":[]}"#, "done_when"),
        (r#"{"endpoint":"https://a.example","done_when":{"pointer":"/ok"}}"#, "done_when"),
        (r#"{"endpoint":"https://a.example","done_when":{"equals":1}}"#, "done_when"),
        (
            r#"{"endpoint":"https://a.example","done_when":{"pointer":"ok","equals":1}}"#,
            "done_when",
        ),
        (
            r#"{"endpoint":"https://a.example",
                "done_when":{"pointer":"/ok","equals":1,"exists":true}}"#,
            "done_when",
        ),
        (
            r#"{"endpoint":"https://a.example",
                "done_when":{"pointer":"/ok","equals":1,"status":[]}}"#,
            "done_when",
        ),
        (r#"{"endpoint":"https://a.example","body":"xml"}"#, "body"),
        (r#"{"endpoint":"https://a.example","body":"none","arg_mapping":{}}"#, "arg_mapping"),
        (r#"{"endpoint":"https://a.example","body":"form","arg_mapping":[1]}"#, "arg_mapping"),
        (r#"{"endpoint":"https://a.example","method":"GET","body":"form"}"#, "body"),
        (r#"{"endpoint":"https://a.example","on_missing_result":"retry"}"#, "on_missing_result"),
        (r#"{"endpoint":"https://a.example","on_unknown":"skip"}"#, "on_unknown"),
        (r#"{"endpoint":"https://a.example","repeatable":"yes"}"#, "repeatable"),
        (r#"{"endpoint":"https://a.example","headers":{"Host":"b.example"}}"#, "Host"),
        (r#"{"endpoint":"https://a.example","headers":{"content-length":"1"}}"#, "content-length"),
        (r#"{"endpoint":"https://a.example","headers":{"Transfer-Encoding":"x"}}"#, "Transfer"),
        (r#"{"endpoint":"https://a.example","headers":{"Connection":"x"}}"#, "Connection"),
        (r#"{"endpoint":"https://a.example","headers":{"idempotency-key":"x"}}"#, "idempotency"),
        (r#"{"endpoint":"https://a.example","headers":{"X-A":"1","x-a":"2"}}"#, "x-a"),
        (r#"{"endpoint":"https://a.example","headers":{"X A":"1"}}"#, "X A"),
        (r#"{"endpoint":"https://a.example","headers":{"X-A":"a\r\nX-B: c"}}"#, "X-A"),
        (r#"{"endpoint":"https://a.example","headers":{"X-A":1}}"#, "headers"),
        (r#"{"endpoint":"https://a.example","headers":{"X-A":"{who}"}}"#, "{who}"),
        (r#"{"endpoint":"https://a.example","idempotency_key_header":"Host"}"#, "Host"),
        (r#"{"endpoint":"https://a.example","arg_mapping":{"a":"{args.x"}}"#, "placeholder"),
        (r#"{"endpoint":"https://a.example","arg_mapping":{"a":"{\"b\":1}"}}"#, "placeholder"),
        (r#"{"endpoint":"https://a.example","arg_mapping":["{secret:a b}"]}"#, "placeholder"),
        (r#"{"endpoint":"https://a.example","arg_mapping":"{undo_id.x}"}"#, "{undo_id.x}"),
    ];
    for (text, word) in rows {
        let message = refused(text);
        assert!(message.contains(word), "{text}: {message}");
    }
}

#[test]
fn endpoints_name_their_host_literally() {
    for endpoint in [
        "ftp://a.example",
        "//a.example/x",
        "/x",
        "https://",
        "https:///x",
        "https://{args.host}/x",
        "https://a.example:{args.port}/x",
        "{args.url}",
        "https://a.example{args.x}",
        "https://user:pass@a.example/",
        "https://a.example@b.example/",
        "https://a.example\\@b.example/",
        "https://a..example/",
        "https://a.example:0/",
        "https://a.example:70000/",
        "https://a.example:80:90/",
        "https://[::1/",
        "https://[a.example]/",
        "https://a example/",
        "https://a.example/#x",
        "https://a.example/a/../b",
        "https://a.example/%2e%2E/b",
        "https://a.example/./b",
        "https://a.example/a b",
        "https://a.example/a\\b",
        "https://a.example/a%2",
        "https://a.example/ä",
        "https://a.example/{{x}}",
        "https://a.example/a?b=\"c\"",
        "HTTPS://a.example/",
    ] {
        let text = format!(r#"{{"endpoint":{}}}"#, serde_json::Value::from(endpoint));
        assert!(FnBody::parse(&node(&text)).is_err(), "{endpoint} is accepted");
    }
    for endpoint in [
        "https://a.example/",
        "http://localhost:8080/x?y=1&z=%20",
        "http://127.0.0.1:8080/a//b/",
        "http://[::1]:8080/x",
        "https://a-b_c.example./x;y=1,2",
    ] {
        assert_eq!(url(endpoint, "{}").as_deref(), Ok(endpoint));
    }
}

#[test]
fn values_cannot_change_a_urls_structure() {
    let endpoint = "https://a.example/users/{args.id}/x?name={args.id}";
    let rows = [
        ("\"a/b\"", "a%2Fb"),
        ("\"a?b#c&d=e\"", "a%3Fb%23c%26d%3De"),
        ("\"../../admin\"", "..%2F..%2Fadmin"),
        ("\"%2e%2e\"", "%252e%252e"),
        ("\"@evil.example\"", "%40evil.example"),
        ("\"\\\\\"", "%5C"),
        ("\"a\\u0000b\\r\\n\"", "a%00b%0D%0A"),
        ("\"ü😀\"", "%C3%BC%F0%9F%98%80"),
        ("\"{result.id}\"", "%7Bresult.id%7D"),
        ("\"...\"", "..."),
        ("12345678901234567890123", "12345678901234567890123"),
        ("1e5", "1e5"),
        ("true", "true"),
    ];
    for (value, part) in rows {
        let expected = format!("https://a.example/users/{part}/x?name={part}");
        assert_eq!(url(endpoint, &format!(r#"{{"id":{value}}}"#)), Ok(expected), "{value}");
    }
    for value in ["\"\"", "\".\"", "\"..\""] {
        let error = url(endpoint, &format!(r#"{{"id":{value}}}"#));
        assert!(matches!(error, Err(RenderError::UrlPart { .. })), "{value}: {error:?}");
    }
    for value in ["null", "[1]", "{}", "\"\\ud800\""] {
        let error = url(endpoint, &format!(r#"{{"id":{value}}}"#));
        assert!(matches!(error, Err(RenderError::NotText { .. })), "{value}: {error:?}");
    }
}

#[test]
fn dot_segments_cannot_be_put_together() {
    for endpoint in [
        "https://a.example/{args.a}{args.a}/x",
        "https://a.example/.{args.a}/x",
        "https://a.example/%2E{args.a}/x",
        "https://a.example/%2e{args.e}/x",
        "https://a.example/x/{args.e}",
    ] {
        let error = url(endpoint, r#"{"a":".","e":""}"#);
        assert!(matches!(error, Err(RenderError::UrlPart { .. })), "{endpoint}: {error:?}");
    }
    let kept = url("https://a.example/v{args.a}?q={args.e}", r#"{"a":".","e":""}"#);
    assert_eq!(kept.as_deref(), Ok("https://a.example/v.?q="));
}

#[test]
fn headers_cannot_be_split() {
    let body = body(r#"{"endpoint":"https://a.example","headers":{"X-Id":"id {args.id}"}}"#);
    let call = render(&body, r#"{"id":"a b"}"#, None).expect("a header's value");
    assert_eq!(call.shown_headers()[0], ("X-Id".to_owned(), "id a b".to_owned()));
    for value in [r#""a\r\nX-Evil: 1""#, r#""a\u0000""#, r#""ü""#, r#""\u007f""#] {
        let error = render(&body, &format!(r#"{{"id":{value}}}"#), None);
        assert!(matches!(error, Err(RenderError::HeaderValue { .. })), "{value}: {error:?}");
    }
    let error = render(&body, r#"{"id":{}}"#, None);
    assert!(matches!(error, Err(RenderError::NotText { .. })));
}

#[test]
fn missing_values_are_told_apart() {
    let body = body(
        r#"{"endpoint":"https://a.example/{result.id}","arg_mapping":["{args.a}","{comp.x}"]}"#,
    );
    let error = |args: &str, result| render(&body, args, result).expect_err("something is missing");
    assert_eq!(
        error("{}", Some(r#"{"id":1}"#)),
        RenderError::MissingArg { placeholder: "{args.a}".to_owned() }
    );
    assert_eq!(
        error(r#"{"a":1}"#, Some(r#"{"id":1}"#)),
        RenderError::MissingComp { placeholder: "{comp.x}".to_owned() }
    );
    let bare = at("https://a.example/{result.id}");
    for (result, has_result) in [(None, false), (Some("{}"), true), (Some("null"), true)] {
        let placeholder = "{result.id}".to_owned();
        let expected = RenderError::MissingResult { placeholder, has_result };
        assert!(expected.is_missing_result());
        assert_eq!(render(&bare, "{}", result), Err(expected));
    }
}

#[test]
fn a_missing_result_may_be_null_in_a_body_but_never_in_a_url() {
    let mapped = body(
        r#"{"endpoint":"https://a.example","on_missing_result":"null",
            "arg_mapping":{"id":"{result.id}","text":"id {result.id}"}}"#,
    );
    let call = render(&mapped, "{}", None).expect("null stands in");
    assert_eq!(call.body, Some(node(r#"{"id":null,"text":"id null"}"#)));
    let in_url = body(r#"{"endpoint":"https://a.example/{result.id}","on_missing_result":"null"}"#);
    assert!(matches!(render(&in_url, "{}", None), Err(RenderError::NotText { .. })));
}

#[test]
fn values_keep_their_type_and_text() {
    let body = body(
        r#"{"endpoint":"https://a.example","arg_mapping":
            {"id":"{result.id}","text":"n {result.id}","all":"{args}","item":"{args.l.1.x}",
             "braces":"{{args.l}}","comp":"{comp.soft}","fixed":[1.0,true,null]}}"#,
    );
    let call = render(&body, r#"{"l":[0,{"x":[2]}]}"#, Some(r#"{"id":99999999999999999999}"#));
    assert_eq!(
        call.expect("all there").body,
        Some(node(
            r#"{"id":99999999999999999999,"text":"n 99999999999999999999",
                "all":{"l":[0,{"x":[2]}]},"item":[2],"braces":"{args.l}","comp":true,
                "fixed":[1.0,true,null]}"#
        ))
    );
}

#[test]
fn inserted_values_are_never_scanned_again() {
    let body = body(
        r#"{"endpoint":"https://a.example/{args.a}","headers":{"X":"{args.a}"},
            "arg_mapping":["{args.a}","{args.a} {{x}}"]}"#,
    );
    let call = render(&body, r#"{"a":"{secret:TOKEN}"}"#, None).expect("all there");
    let sent = call.resolve(&|_| Some("leaked".to_owned())).expect("no secret is needed");
    assert_eq!(sent.url, "https://a.example/%7Bsecret%3ATOKEN%7D");
    assert_eq!(sent.headers[0].1, "{secret:TOKEN}");
    assert_eq!(sent.body.as_deref(), Some(r#"["{secret:TOKEN}","{secret:TOKEN} {x}"]"#));
}

#[test]
fn secrets_stay_markers_until_the_worker_puts_them_in() {
    let body = body(
        r#"{"endpoint":"https://a.example/{secret:P}?k={secret:Q}","headers":{"A":"{secret:H}"},
            "arg_mapping":{"a/b":["{secret:B}","x {secret:B} {args.v}"]}}"#,
    );
    assert_eq!(body.secret_names(), ["B", "H", "P", "Q"]);
    let call = render(&body, r#"{"v":"hidden"}"#, None).expect("all there");
    assert_eq!(call.shown_url(), "https://a.example/{secret:P}?k={secret:Q}");
    let shown = node(r#"{"a/b":["{secret:B}","x {secret:B} hidden"]}"#);
    assert_eq!(call.body, Some(shown));
    let secrets = |name: &str| Some(format!("<{name}&>"));
    let sent = call.resolve(&secrets).expect("all there");
    assert_eq!(sent.url, "https://a.example/%3CP%26%3E?k=%3CQ%26%3E");
    assert_eq!(sent.body.as_deref(), Some(r#"{"a/b":["<B&>","x <B&> hidden"]}"#));
    let missing = call.resolve(&|name| (name != "H").then(|| "x".to_owned()));
    assert_eq!(missing, Err(ResolveError::MissingSecret { name: "H".to_owned() }));
    for (name, value) in [("P", ".."), ("P", ""), ("H", "a\nb")] {
        let odd = |asked: &str| Some(if asked == name { value } else { "x" }.to_owned());
        assert!(matches!(call.resolve(&odd), Err(ResolveError::Unusable { .. })), "{name}");
    }
    for text in [format!("{call:?}"), format!("{sent:?}"), format!("{:?}", call.body_secrets)] {
        assert!(!text.contains("hidden") && !text.contains("<B&>"), "{text}");
    }
}

#[test]
fn intercept_can_tell_that_a_call_could_not_be_undone() {
    let body = body(
        r#"{"endpoint":"https://a.example/{args.id}/{result.id}?s={session_id}",
            "headers":{"X":"{args.h}","Y":"{secret:S}"},
            "arg_mapping":{"c":"{comp.soft}","b":"{args.b}"}}"#,
    );
    let check = |args: &str| body.args_placeholders_render(&node(args));
    assert_eq!(check(r#"{"id":"1","h":"x","b":null}"#), Ok(()));
    assert!(matches!(check(r#"{"h":"x","b":1}"#), Err(RenderError::MissingArg { .. })));
    assert!(matches!(check(r#"{"id":"1","b":1}"#), Err(RenderError::MissingArg { .. })));
    assert!(matches!(check(r#"{"id":"1","h":"x"}"#), Err(RenderError::MissingArg { .. })));
    assert!(matches!(check(r#"{"id":"..","h":"x","b":1}"#), Err(RenderError::UrlPart { .. })));
    let split = check(r#"{"id":"1","h":"a\nb","b":1}"#);
    assert!(matches!(split, Err(RenderError::HeaderValue { .. })));
    let comp = |text: &str| {
        let rendered = render_descriptor(&node(text), &node("{}")).expect("a descriptor");
        body.comp_placeholders_render(&rendered)
    };
    assert_eq!(comp(r#"{"soft":"{result.x}"}"#), Ok(()));
    assert!(matches!(comp("{}"), Err(RenderError::MissingComp { .. })));
}

#[test]
fn get_never_has_a_body() {
    let body = body(r#"{"endpoint":"https://a.example/{comp.id}","method":"GET"}"#);
    let call = render(&body, "{}", None).expect("all there");
    assert_eq!((&call.body, call.shown_headers().len()), (&None, 1));
    assert!(body.uses_comp());
    let bare = FnBody::parse(&node(r#"{"endpoint":"https://a.example","method":"GET"}"#));
    assert!(!bare.expect("a registration").uses_comp());
}

#[test]
fn a_delete_that_names_its_object_in_the_url_has_no_body() {
    let call = |text: &str| render(&body(text), r#"{"id":1}"#, None).expect("all there");
    let has_type = |call: &RenderedCall| call.content_type().is_some();
    let named = call(r#"{"endpoint":"https://a.example/{comp.id}","method":"DELETE"}"#);
    assert_eq!((&named.body, has_type(&named)), (&None, false));
    // Without it nothing would say what is to be deleted.
    for text in [
        r#"{"endpoint":"https://a.example/x","method":"DELETE"}"#,
        r#"{"endpoint":"https://a.example/x?k={secret:K}","method":"DELETE"}"#,
        r#"{"endpoint":"https://a.example/{comp.id}","method":"DELETE","body":"json"}"#,
        r#"{"endpoint":"https://a.example/{comp.id}","method":"DELETE","arg_mapping":{}}"#,
    ] {
        let call = call(text);
        assert_eq!((call.body.is_some(), has_type(&call)), (true, true), "{text}");
    }
    let post = call(r#"{"endpoint":"https://a.example/x","body":"none"}"#);
    assert_eq!((&post.body, has_type(&post)), (&None, false));
    let unread = body(r#"{"endpoint":"https://a.example/x","body":"none"}"#);
    assert!(!unread.uses_comp(), "it sends none of them");
}

#[test]
fn a_form_has_nested_names_and_exact_values() {
    let form = body(
        r#"{"endpoint":"https://a.example","body":"form","headers":{"A":"{secret:H}"},
            "arg_mapping":{"amount":"{args.amount}","meta":{"order id":"a&b=c/ä","ok":true},
              "expand":["charge","a+b"],"items":[{"n":1},{"n":2,"x":[3]}],"none":null,
              "empty":[],"key":"{secret:K}"}}"#,
    );
    let call = render(&form, r#"{"amount":12.50}"#, None).expect("all there");
    let type_ = call.content_type();
    assert_eq!(type_.as_deref(), Some("application/x-www-form-urlencoded"));
    let text = "amount=12.50&meta%5Border+id%5D=a%26b%3Dc%2F%C3%A4&meta%5Bok%5D=true&\
        expand%5B%5D=charge&expand%5B%5D=a%2Bb&items%5B0%5D%5Bn%5D=1&items%5B1%5D%5Bn%5D=2&\
        items%5B1%5D%5Bx%5D%5B%5D=3&none=&key=";
    assert_eq!(call.shown_body(), Some(format!("{text}%7Bsecret%3AK%7D")));
    let sent = call.resolve(&|_| Some("s 1".to_owned())).expect("resolved");
    assert_eq!(sent.body, Some(format!("{text}s+1")));
    let own =
        body(r#"{"endpoint":"https://a.example","body":"form","headers":{"content-type":"x/y"}}"#);
    let call = render(&own, "{}", None).expect("all there");
    assert_eq!(call.content_type().as_deref(), Some("x/y"), "the registration's own word");
    assert_eq!(call.shown_body().as_deref(), Some("soft=true&id=c%2F1"));
    let text = r#"{"endpoint":"https://a.example","body":"form","arg_mapping":"{args}"}"#;
    for args in ["[1]", r#"{"a":"\ud800"}"#, "1"] {
        let refused = render(&body(text), args, None);
        assert!(matches!(refused, Err(RenderError::NotAForm { .. })), "{args}: {refused:?}");
    }
}

#[test]
fn a_digest_tells_calls_apart_that_an_endpoint_can_tell_apart() {
    let text = r#"{"endpoint":"https://a.example/{args.a}","headers":{"A":"{args.b}"},
        "arg_mapping":{"c":"{args.c}","s":"{secret:S}"}}"#;
    let digest =
        |text: &str, args: &str| render(&body(text), args, None).expect("all there").digest();
    let one = digest(text, r#"{"a":1,"b":2,"c":3}"#);
    assert_eq!(one, digest(text, r#"{"c":3,"b":2,"a":1,"more":4}"#));
    for args in [r#"{"a":9,"b":2,"c":3}"#, r#"{"a":1,"b":9,"c":3}"#, r#"{"a":1,"b":2,"c":"3"}"#] {
        assert_ne!(one, digest(text, args), "{args}");
    }
    let same = text.replace("\"headers\"", "\"timeout_ms\":5,\"done_statuses\":[404],\"headers\"");
    assert_eq!(one, digest(&same, r#"{"a":1,"b":2,"c":3}"#), "the endpoint sees nothing of it");
    for other in [
        text.replace("\"headers\"", "\"method\":\"PUT\",\"headers\""),
        text.replace("\"headers\"", "\"body\":\"form\",\"headers\""),
    ] {
        assert_ne!(one, digest(&other, r#"{"a":1,"b":2,"c":3}"#), "{other}");
    }
}

#[test]
fn an_answers_body_can_say_whether_it_is_done() {
    let judge = |when: &str, status, text: &str| {
        let registration = format!(r#"{{"endpoint":"https://a.example","done_when":{when}}}"#);
        let heard = Heard { status, retry_after_ms: None, body: text.as_bytes() };
        body(&registration).rules.judge(&heard)
    };
    use CallOutcome::{Done, Permanent, Retry};
    let ok = r#"{"pointer":"/ok","equals":true}"#;
    assert_eq!(judge(ok, 200, r#"{"ok":true}"#), Done);
    assert_eq!(judge(ok, 201, "\u{feff}{\"ok\":true}"), Done, "with a byte order mark");
    for text in [r#"{"ok":false}"#, r#"{"ok":"true"}"#, "{}", "", "no json", "[true]"] {
        assert_eq!(judge(ok, 200, text), Retry, "{text}");
    }
    assert_eq!(judge(ok, 404, r#"{"ok":true}"#), Permanent, "it is about 2xx");
    let gone = r#"[{"status":[404,400],"pointer":"/error/code","equals":"gone"},
        {"status":[200],"pointer":"/error","exists":false}]"#;
    assert_eq!(judge(gone, 404, r#"{"error":{"code":"gone"}}"#), Done);
    assert_eq!(judge(gone, 404, "no such route"), Permanent);
    assert_eq!(judge(gone, 200, r#"{"id":1}"#), Done);
    assert_eq!(judge(gone, 200, r#"{"error":null}"#), Retry);
    assert_eq!(judge(gone, 200, "no json"), Retry, "what cannot be read says nothing");
    assert_eq!(judge(gone, 204, ""), Done, "no condition is about it");
    let number = r#"{"pointer":"/n/0","equals":1}"#;
    assert_eq!(judge(number, 200, r#"{"n":[1]}"#), Done);
    assert_eq!(judge(number, 200, r#"{"n":["1"]}"#), Retry);
    let whole = r#"{"pointer":"","equals":{"a":1,"b":2}}"#;
    assert_eq!(judge(whole, 200, r#"{"b":2, "a":1}"#), Done);
    let strict = r#"{"endpoint":"https://a.example","done_when":{"pointer":"/ok","equals":true},
        "not_done":"dead_letter","done_statuses":[202]}"#;
    let rules = body(strict).rules;
    let heard = |status| Heard { status, retry_after_ms: None, body: b"{}" };
    assert_eq!(rules.judge(&heard(200)), Permanent);
    assert_eq!(rules.judge(&heard(202)), Done, "listed, whatever its body says");
}

#[test]
fn the_digest_is_of_the_meaning_and_not_of_the_text() {
    use undolog_core::fn_body::digest;
    let strict = |text: &str| digest(&parse_strict(text.as_bytes()).expect("JSON"));
    assert_eq!(strict(r#"{"a":1,"b":2}"#), strict(r#"{ "b":2, "a":1 }"#));
    assert_ne!(strict(r#"{"a":1}"#), strict(r#"{"a":2}"#));
    assert_eq!(strict("{}").len(), 64);
}
