//! The client against a raw server that says whatever a test wants.

use std::{io::Write as _, net::SocketAddr, time::Duration};

use flate2::{Compression, write::GzEncoder};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::mpsc,
};

use undolog_core::{
    answer::Rules,
    fn_body::{Encoding, FnBody, Method, Piece},
    json::parse_lossless,
};

use super::{
    AllowList, Answer, Call, CallOutcome, Egress, EgressOptions, KEPT_RESPONSE_BYTES, Names,
    Reached, RenderedCall, SecretSource, TIMED_OUT, error::NO_CONNECTION,
};

/// What the server does with each connection after it has read a request's head.
#[derive(Clone)]
enum Act {
    Say(Vec<u8>),
    Endless,
    Hang,
    Drop,
}

async fn server(act: Act) -> (u16, mpsc::UnboundedReceiver<String>) {
    server_on("127.0.0.1:0", act).await
}

async fn server_on(address: &str, act: Act) -> (u16, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind(address).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (heard, heard_rx) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (act, heard) = (act.clone(), heard.clone());
            tokio::spawn(async move {
                let mut bytes = vec![0; 65536];
                let read = stream.read(&mut bytes).await.unwrap_or(0);
                let _ = heard.send(String::from_utf8_lossy(&bytes[..read]).into_owned());
                match act {
                    Act::Say(text) => {
                        let _ = stream.write_all(&text).await;
                        let _ = stream.shutdown().await;
                    }
                    Act::Endless => {
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
                        while stream.write_all(&[b'x'; 16384]).await.is_ok() {}
                    }
                    Act::Hang => std::future::pending().await,
                    Act::Drop => {}
                }
            });
        }
    });
    (port, heard_rx)
}

fn reply(head: &str, body: &[u8]) -> Act {
    let mut text =
        format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    text.extend_from_slice(body);
    Act::Say(text)
}

fn egress(allow: &[&str]) -> Egress {
    let allow = allow.iter().map(|t| t.parse().expect("an entry")).collect();
    Egress::new(&EgressOptions { allow, ..EgressOptions::default() }).expect("a client")
}

fn call(url: &str) -> Call {
    Call {
        org_slug: "acme".to_owned(),
        rendered: RenderedCall {
            method: Method::Post,
            url: vec![Piece::Text(url.to_owned())],
            headers: vec![("Idempotency-Key".to_owned(), vec![Piece::Text("k1".to_owned())])],
            body: Some(parse_lossless(b"{\"a\":1}").expect("JSON")),
            encoding: Encoding::Json,
            body_secrets: Vec::new(),
            timeout_ms: 5_000,
        },
        rules: Rules { done_statuses: vec![404], ..Rules::default() },
    }
}

async fn answer(act: Act) -> Answer {
    let (port, _heard) = server(act).await;
    egress(&["127.0.0.1"]).call(&call(&format!("http://127.0.0.1:{port}/x"))).await
}

#[tokio::test]
async fn a_call_carries_its_key_and_body_and_keeps_the_answer() {
    let (port, mut heard) = server(reply("200 OK", b"a\0\xff")).await;
    let got = egress(&["127.0.0.1"]).call(&call(&format!("http://127.0.0.1:{port}/x"))).await;
    assert_eq!((got.outcome, got.status), (CallOutcome::Done, Some(200)), "{got:?}");
    assert_eq!(got.response, b"a\0\xff", "bytes are kept exactly");
    let text = heard.recv().await.expect("a request");
    assert!(text.contains("idempotency-key: k1\r\n") && text.ends_with("{\"a\":1}"), "{text}");
}

#[tokio::test]
async fn statuses_mean_what_the_design_says() {
    for (head, expected) in [
        ("404 Not Found", CallOutcome::Done),
        ("500 Oops", CallOutcome::Retry),
        ("408 Slow", CallOutcome::Retry),
        ("400 Bad", CallOutcome::Permanent),
        ("429 Busy\r\nRetry-After: 7", CallOutcome::Defer { after_ms: 7_000 }),
        ("503 Busy\r\nRetry-After: 7", CallOutcome::Defer { after_ms: 7_000 }),
        (
            "503 Busy\r\nDate: Wed, 21 Oct 2026 07:28:00 GMT\r\n\
             Retry-After: Wed, 21 Oct 2026 07:28:09 GMT",
            CallOutcome::Defer { after_ms: 9_000 },
        ),
        (
            "503 Busy\r\nRetry-After: Wed, 21 Oct 2026 07:28:09 GMT",
            CallOutcome::Defer { after_ms: 30_000 },
        ),
        (
            "503 Busy\r\nRetry-After: 99999999999999999999",
            CallOutcome::Defer { after_ms: 3_600_000 },
        ),
        ("302 Found\r\nLocation: http://127.0.0.1:1/", CallOutcome::Permanent),
    ] {
        let got = answer(reply(head, b"")).await;
        assert_eq!(got.outcome, expected, "{head}: {got:?}");
    }
}

#[tokio::test]
async fn an_error_quotes_the_answer_with_its_nul() {
    let got = answer(reply("422 No", b"no\0pe")).await;
    assert_eq!(got.error.as_deref(), Some("HTTP 422: no\0pe"));
}

/// An answer in gzip, which nobody asked for.
fn gzipped(head: &str, body: &[u8]) -> Act {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body).expect("written");
    reply(&format!("{head}\r\nContent-Encoding: gzip"), &encoder.finish().expect("finished"))
}

#[tokio::test]
async fn a_compressed_answer_is_read_and_never_more_of_it_than_a_bound() {
    let got = answer(gzipped("422 No", b"no such charge")).await;
    assert_eq!(got.error.as_deref(), Some("HTTP 422: no such charge"));
    assert_eq!(got.response, b"no such charge");
    let got = answer(gzipped("200 OK", &vec![b' '; 1024 * 1024 + 1])).await;
    assert_eq!(got.outcome, CallOutcome::Permanent, "{:?}", got.error);
    assert!(got.error.is_some_and(|e| e.starts_with("oversize answer")));
    let got = answer(reply("422 No\r\nContent-Encoding: br", b"\x0b\x02\x80no")).await;
    assert_eq!(got.response, b"\x0b\x02\x80no", "what cannot be decoded is kept as it came");
}

#[tokio::test]
async fn a_success_that_does_not_say_so_is_not_done() {
    let text = r#"{"endpoint":"https://x.example","done_when":{"pointer":"/ok","equals":true}}"#;
    let body = FnBody::parse(&parse_lossless(text.as_bytes()).expect("JSON")).expect("a body");
    for (act, outcome, error) in [
        (reply("200 OK", b"{\"ok\":true}"), CallOutcome::Done, None),
        (gzipped("200 OK", b"\xef\xbb\xbf{\"ok\":true}"), CallOutcome::Done, None),
        (
            reply("200 OK", b"{\"ok\":false}"),
            CallOutcome::Retry,
            Some("HTTP 200, but done_when does not hold: {\"ok\":false}"),
        ),
    ] {
        let (port, _heard) = server(act).await;
        let mut made = call(&format!("http://127.0.0.1:{port}/x"));
        made.rules = body.rules.clone();
        let got = egress(&["127.0.0.1"]).call(&made).await;
        assert_eq!((got.outcome, got.error.as_deref()), (outcome, error));
        assert!(got.may_have_run());
    }
}

#[tokio::test]
async fn a_call_without_a_body_says_nothing_about_one() {
    for method in [Method::Delete, Method::Post] {
        let (port, mut heard) = server(reply("200 OK", b"")).await;
        let mut bare = call(&format!("http://127.0.0.1:{port}/x"));
        bare.rendered.method = method;
        bare.rendered.body = None;
        let got = egress(&["127.0.0.1"]).call(&bare).await;
        assert_eq!(got.outcome, CallOutcome::Done, "{got:?}");
        let text = heard.recv().await.expect("a request").to_ascii_lowercase();
        assert!(text.ends_with("\r\n\r\n") && !text.contains("content-type"), "{text}");
        assert!(!text.contains("transfer-encoding"), "{text}");
        // A POST has to say that nothing follows.
        assert_eq!(text.contains("content-length: 0"), method == Method::Post, "{text}");
    }
}

/// A listener that takes no connection: its queue is full, so that the kernel drops what comes.
struct Dead {
    _listener: TcpListener,
    _queued: Vec<TcpStream>,
    address: SocketAddr,
}

async fn dead(address: &str) -> Dead {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(address.parse().expect("an address")).expect("bound");
    let listener = socket.listen(0).expect("listens");
    let address = listener.local_addr().expect("an address");
    let mut queued = Vec::new();
    let short = Duration::from_millis(300);
    while let Ok(connected) = tokio::time::timeout(short, TcpStream::connect(address)).await {
        queued.push(connected.expect("queued"));
        assert!(queued.len() < 50, "the queue is never full");
    }
    Dead { _listener: listener, _queued: queued, address }
}

#[tokio::test]
async fn an_address_that_takes_no_connection_hides_no_other() {
    let dead = dead("127.0.0.2:0").await;
    let port = dead.address.port();
    let (_, mut heard) = server_on(&format!("127.0.0.3:{port}"), reply("200 OK", b"")).await;
    let two = Names::Fixed(["127.0.0.2", "127.0.0.3"].map(|a| a.parse().expect("one")).to_vec());
    let one = Names::Fixed(vec!["127.0.0.2".parse().expect("one")]);
    let options = EgressOptions {
        allow: vec![format!("two.test:{port}").parse().expect("an entry")],
        ..EgressOptions::default()
    };
    let made = call(&format!("http://two.test:{port}/x"));
    let got = Egress::with_names(&options, &two).expect("a client").call(&made).await;
    assert_eq!(got.outcome, CallOutcome::Done, "{got:?}");
    assert!(heard.recv().await.is_some());
    let mut short = made.clone();
    short.rendered.timeout_ms = 1_000;
    let got = Egress::with_names(&options, &one).expect("a client").call(&short).await;
    assert_eq!((got.outcome, got.reached), (CallOutcome::Retry, Reached::Nothing), "{got:?}");
    assert_eq!(got.error.as_deref(), Some(NO_CONNECTION));
    assert!(!got.may_have_run(), "nothing was sent");
}

#[tokio::test]
async fn an_endless_answer_is_cut_and_permanent() {
    let got = answer(Act::Endless).await;
    assert_eq!(got.outcome, CallOutcome::Permanent);
    assert!(got.error.is_some_and(|e| e.starts_with("oversize answer")));
    assert_eq!((got.response.len(), got.response_truncated), (KEPT_RESPONSE_BYTES, true));
}

#[tokio::test]
async fn lost_connections_and_silence_are_tried_again() {
    let got = answer(Act::Drop).await;
    assert_eq!(got.outcome, CallOutcome::Retry, "{got:?}");
    let (port, mut heard) = server(Act::Hang).await;
    let mut slow = call(&format!("http://127.0.0.1:{port}/"));
    slow.rendered.timeout_ms = 100;
    let got = egress(&["127.0.0.1"]).call(&slow).await;
    assert_eq!((got.outcome, got.error.as_deref()), (CallOutcome::Retry, Some(TIMED_OUT)));
    assert!(heard.recv().await.is_some());
    assert!(heard.try_recv().is_err(), "the client retries nothing by itself");
    let got = egress(&["127.0.0.1"]).call(&call("http://127.0.0.1:1/")).await;
    assert_eq!(got.error.as_deref(), Some("the connection was refused"));
    assert_eq!(got.outcome, CallOutcome::Retry);
    let got = egress(&[]).call(&call("https://no-such-host.invalid/")).await;
    assert_eq!(got.outcome, CallOutcome::Retry, "{got:?}");
    assert!(got.error.is_some_and(|e| e.contains("could not be resolved")));
}

#[tokio::test]
async fn a_tls_error_is_permanent() {
    let (port, _heard) = server(Act::Say(b"this is no TLS at all\r\n\r\n".to_vec())).await;
    let got = egress(&["127.0.0.1"]).call(&call(&format!("https://127.0.0.1:{port}/"))).await;
    assert_eq!(got.outcome, CallOutcome::Permanent, "{got:?}");
    assert!(got.error.is_some_and(|e| e.starts_with("TLS: ")));
}

#[tokio::test]
async fn what_is_not_public_is_refused_before_a_byte_is_sent() {
    let (port, mut heard) = server(reply("200 OK", b"")).await;
    let strict = egress(&[]);
    for url in [
        format!("http://127.0.0.1:{port}/"),
        format!("https://127.0.0.1:{port}/"),
        format!("http://localhost:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("http://0x7f.1:{port}/"),
        "https://169.254.169.254/latest/meta-data".to_owned(),
        "https://localhost/".to_owned(),
        "https://8.8.8.8:8443/".to_owned(),
        "http://8.8.8.8/".to_owned(),
        "https://user:pw@8.8.8.8/".to_owned(),
        "ftp://8.8.8.8/".to_owned(),
        "file:///etc/passwd".to_owned(),
        "not a url".to_owned(),
    ] {
        let got = strict.call(&call(&url)).await;
        assert_eq!(got.outcome, CallOutcome::Permanent, "{url}: {got:?}");
    }
    assert!(heard.try_recv().is_err(), "nothing reached the server");
}

#[tokio::test]
async fn a_listed_service_is_reached_by_name_and_no_other_port_is() {
    let (port, _heard) = server(reply("200 OK", b"")).await;
    let listed = egress(&[&format!("localhost:{port}")]);
    let got = listed.call(&call(&format!("http://localhost:{port}/"))).await;
    assert_eq!(got.outcome, CallOutcome::Done, "{got:?}");
    let (other, _heard) = server(reply("200 OK", b"")).await;
    let got = listed.call(&call(&format!("http://localhost:{other}/"))).await;
    assert_eq!(got.outcome, CallOutcome::Permanent, "{got:?}");
}

#[tokio::test]
async fn secrets_go_out_and_never_come_back() {
    let dir = std::env::temp_dir().join(format!("undolog-egress-{}", uuid::Uuid::now_v7()));
    let token = dir.join("_shared/TOKEN");
    std::fs::create_dir_all(dir.join("_shared")).expect("a folder");
    std::fs::write(&token, "s3cr/et\n").expect("a file");
    let options = EgressOptions {
        allow: AllowList::loopback(),
        secrets: SecretSource { dir: Some(dir.clone()) },
        extra_roots_pem: Vec::new(),
    };
    let client = Egress::new(&options).expect("a client");
    let (port, mut heard) = server(reply("400 Bad", b"bad token s3cr/et (s3cr%2Fet)")).await;
    let mut secret = call("");
    secret.rendered.url = vec![
        Piece::Text(format!("http://127.0.0.1:{port}/t/")),
        Piece::UrlSecret("TOKEN".to_owned()),
    ];
    let bearer = vec![Piece::Text("Bearer ".to_owned()), Piece::Secret("TOKEN".to_owned())];
    secret.rendered.headers.push(("Authorization".to_owned(), bearer));
    let got = client.call(&secret).await;
    let sent = heard.recv().await.expect("a request");
    assert!(sent.starts_with("POST /t/s3cr%2Fet ") && sent.contains("Bearer s3cr/et"), "{sent}");
    assert_eq!(got.response, b"bad token {secret:TOKEN} ({secret:TOKEN})");
    assert!(!format!("{got:?}{secret:?}{client:?}").contains("s3cr"), "{got:?}");
    std::fs::write(&token, "x\ny").expect("a file");
    let got = client.call(&secret).await;
    assert_eq!(got.outcome, CallOutcome::Permanent, "a header cannot hold a line break");
    std::fs::remove_dir_all(&dir).expect("removed");
    let got = client.call(&secret).await;
    assert_eq!(got.outcome, CallOutcome::Permanent);
    assert_eq!(got.error.as_deref(), Some("the secret \"TOKEN\" is not set in this worker"));
}

#[tokio::test]
async fn own_headers_cannot_be_set() {
    for name in ["Host", "Transfer-Encoding", "bad name"] {
        let mut wrong = call("http://127.0.0.1:1/");
        wrong.rendered.headers.push((name.to_owned(), vec![Piece::Text("x".to_owned())]));
        let got = egress(&["127.0.0.1"]).call(&wrong).await;
        assert_eq!(got.outcome, CallOutcome::Permanent, "{name}: {got:?}");
    }
}
