//! The HTTP side: hyper itself, since a framework would not let us close a connection rudely.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::call::Call;
use super::script::{Act, Script};
use super::state::{Answer, Objects, State};

type Chunks = Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>;
type Reply = Response<StreamBody<Chunks>>;

/// Returned by the service to make hyper close the connection without an answer.
#[derive(Debug)]
struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("closed on purpose")
    }
}

impl std::error::Error for Closed {}

/// What all connections and the test share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    calls: Mutex<Vec<Call>>,
    scripts: Mutex<Vec<Script>>,
    state: Mutex<State>,
}

impl Shared {
    pub(crate) fn script(&self, script: Script) {
        self.scripts.lock().expect("no holder panics").insert(0, script);
    }

    pub(crate) fn behave(&self) {
        self.scripts.lock().expect("no holder panics").clear();
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().expect("no holder panics").clone()
    }

    pub(crate) fn objects(&self) -> Objects {
        self.state.lock().expect("no holder panics").objects.clone()
    }

    /// The first script for the path, used up by one.
    fn act(&self, path: &str) -> Option<Act> {
        let mut scripts = self.scripts.lock().expect("no holder panics");
        let index = scripts.iter().position(|script| path.starts_with(&script.route))?;
        let act = scripts[index].act.clone();
        if let Some(times) = &mut scripts[index].times {
            *times -= 1;
            if *times == 0 {
                scripts.remove(index);
            }
        }
        Some(act)
    }

    /// Records an arrival and returns its index.
    fn arrive(&self, head: &http::request::Parts) -> usize {
        let mut calls = self.calls.lock().expect("no holder panics");
        let number = calls.len() as u64 + 1;
        let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into();
        calls.push(Call {
            number,
            at: Instant::now(),
            method: head.method.to_string(),
            path: head.uri.path().to_owned(),
            query: head.uri.query().unwrap_or("").to_owned(),
            headers: head.headers.iter().map(|(n, v)| (n.to_string(), text(v))).collect(),
            body: Vec::new(),
            applied: false,
            status: None,
        });
        calls.len() - 1
    }

    fn note(&self, index: usize, change: impl FnOnce(&mut Call)) {
        change(&mut self.calls.lock().expect("no holder panics")[index]);
    }

    /// The ordinary effect and answer of a call that has been read.
    fn apply(&self, index: usize) -> Answer {
        let call = self.calls.lock().expect("no holder panics")[index].clone();
        let mut state = self.state.lock().expect("no holder panics");
        let (answer, applied) = state.apply(&call.path, call.key(), &call.json());
        drop(state);
        self.note(index, |call| call.applied = applied);
        answer
    }
}

/// Serves until the task is aborted; its connections end with it.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let service = service_fn(move |request| {
                let shared = Arc::clone(&shared);
                async move { answer(&shared, request).await }
            });
            // An error here is a client that went away, or a connection closed on purpose.
            let _ended = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(shared: &Shared, request: Request<Incoming>) -> Result<Reply, Closed> {
    let (head, body) = request.into_parts();
    match head.uri.path() {
        "/state" => return Ok(whole(200, &json!(shared.objects()))),
        "/calls" => {
            let calls: Vec<Value> = shared.calls().iter().map(Call::to_json).collect();
            return Ok(whole(200, &json!(calls)));
        }
        "/script" => return Ok(take_script(shared, body).await),
        _ => {}
    }
    let index = shared.arrive(&head);
    let act = shared.act(head.uri.path());
    if let Some(Act::Close) = act {
        return Err(Closed);
    }
    let body = body.collect().await.map_err(|_| Closed)?.to_bytes();
    shared.note(index, |call| call.body = body.to_vec());
    let reply = perform(shared, index, act).await?;
    shared.note(index, |call| call.status = Some(reply.status().as_u16()));
    Ok(reply)
}

async fn perform(shared: &Shared, index: usize, act: Option<Act>) -> Result<Reply, Closed> {
    Ok(match act {
        None => ordinary(shared, index),
        Some(Act::Status(status)) => whole(status, &scripted(status)),
        Some(Act::AppliedThenStatus(status)) => {
            shared.apply(index);
            whole(status, &scripted(status))
        }
        Some(Act::RetryAfter(status, seconds)) => {
            let headers = [("retry-after".to_owned(), seconds.to_string())];
            reply(status, &headers, once(scripted(status).to_string()))
        }
        Some(Act::Answer(status, headers, body)) => reply(status, &headers, once(body)),
        Some(Act::Redirect(to)) => reply(302, &[("location".to_owned(), to)], once(String::new())),
        Some(Act::Delay(pause)) => {
            tokio::time::sleep(pause).await;
            ordinary(shared, index)
        }
        Some(Act::Hold(gate)) => {
            gate.pass().await;
            ordinary(shared, index)
        }
        Some(Act::HoldThenStatus(gate, status)) => {
            gate.pass().await;
            whole(status, &scripted(status))
        }
        Some(Act::Hang) => std::future::pending().await,
        Some(Act::AppliedThenHang) => {
            shared.apply(index);
            std::future::pending().await
        }
        Some(Act::Trickle(pause)) => {
            let Answer { status, body } = shared.apply(index);
            reply(status, &[], trickle(body.to_string(), pause))
        }
        Some(Act::Endless) => {
            let block = Bytes::from_static(&[b'x'; 4096]);
            reply(200, &[], Box::pin(stream::repeat_with(move || Ok(Frame::data(block.clone())))))
        }
        Some(Act::Huge(status, bytes)) => reply(status, &[], once("x".repeat(bytes))),
        Some(Act::AppliedThenClose) => {
            shared.apply(index);
            return Err(Closed);
        }
        Some(Act::Close) => return Err(Closed),
    })
}

fn ordinary(shared: &Shared, index: usize) -> Reply {
    let Answer { status, body } = shared.apply(index);
    whole(status, &body)
}

async fn take_script(shared: &Shared, body: Incoming) -> Reply {
    let Ok(body) = body.collect().await else { return whole(400, &json!("no body")) };
    match serde_json::from_slice::<Option<Script>>(&body.to_bytes()) {
        Ok(Some(script)) => shared.script(script),
        Ok(None) => shared.behave(),
        Err(error) => return whole(400, &json!(error.to_string())),
    }
    whole(200, &json!("ok"))
}

fn scripted(status: u16) -> Value {
    json!({"error": format!("scripted {status}")})
}

fn whole(status: u16, body: &Value) -> Reply {
    reply(
        status,
        &[("content-type".to_owned(), "application/json".to_owned())],
        once(body.to_string()),
    )
}

fn reply(status: u16, headers: &[(String, String)], chunks: Chunks) -> Reply {
    let mut builder = Response::builder().status(status);
    for (name, value) in headers {
        builder = builder.header(name, value);
    }
    builder.body(StreamBody::new(chunks)).expect("a well-formed script")
}

fn once(text: String) -> Chunks {
    Box::pin(stream::once(std::future::ready(Ok(Frame::data(Bytes::from(text))))))
}

fn trickle(text: String, pause: Duration) -> Chunks {
    Box::pin(stream::iter(text.into_bytes()).then(move |byte| async move {
        tokio::time::sleep(pause).await;
        Ok(Frame::data(Bytes::copy_from_slice(&[byte])))
    }))
}
