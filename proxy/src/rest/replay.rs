//! `GET /sessions/{id}/replay`: all stored results of a session in one streamed answer, for a
//! client that resumes.

use std::{io, sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use undolog_listen::Place;
use undolog_proto::v1;
use utoipa::ToSchema;

use super::{answer::Errors, extract::Named, shown::Wire as _, tool_call::ToolResult};
use crate::{call::Caller, error::Refused, service::Proxy};

/// Parts on their way to one client.
const BUFFERED: usize = 2;
/// A client that has not read for so long is gone.
const UNREAD_FOR: Duration = Duration::from_secs(10);

/// Everything that a session's calls gave.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Replay {
    session_id: String,
    /// The first step that nobody has used.
    next_step_index: u32,
    /// Calls without a result that must not run as other ones: each one's own step answers what it
    /// is.
    open: Vec<Open>,
    /// Committed calls, in the order in which they were committed.
    effects: Vec<Replayed>,
    /// The list is whole. A list that broke off ends before this.
    complete: bool,
}

/// A call that waits, runs, was rejected, or may have happened.
#[derive(Debug, Serialize, ToSchema)]
struct Open {
    effect_id: String,
    step_index: u32,
    step_key: Option<String>,
    tool_name: String,
    call_signature: String,
    state: String,
}

impl From<v1::OpenCall> for Open {
    fn from(call: v1::OpenCall) -> Self {
        Self {
            effect_id: call.effect_id,
            step_index: call.step_index,
            step_key: Option::wire(call.step_key),
            tool_name: call.tool_name,
            call_signature: call.call_signature,
            state: call.state,
        }
    }
}

/// One committed call.
#[derive(Debug, Serialize, ToSchema)]
struct Replayed {
    effect_id: String,
    step_index: u32,
    step_key: Option<String>,
    call_signature: String,
    tool_name: String,
    tool_version: String,
    attempt: u32,
    /// A rollback to this position undoes the call.
    position: u32,
    result: ToolResult,
}

impl From<v1::ReplayedCall> for Replayed {
    fn from(call: v1::ReplayedCall) -> Self {
        Self {
            effect_id: call.effect_id,
            step_index: call.step_index,
            step_key: Option::wire(call.step_key),
            call_signature: call.call_signature,
            tool_name: call.tool_name,
            tool_version: call.tool_version,
            attempt: call.attempt,
            position: call.position,
            result: call.result.unwrap_or_default().into(),
        }
    }
}

/// Streams all stored results of a session. It is refused where a call of the session would be.
#[utoipa::path(get, path = "/sessions/{id}/replay", tag = "sessions",
    params(("id" = String, Path, format = Uuid, description = "The session")),
    responses((status = 200, body = Replay), Errors))]
pub(super) async fn replay(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Named(session_id): Named,
) -> Result<Response, Refused> {
    let place = proxy.replays.take(caller.who)?;
    let request = v1::GetReplayRequest { org_id: String::new(), session_id: session_id.clone() };
    // What the engine refuses decides the status; what comes after it can only break off.
    let ask = |request: tonic::Request<v1::GetReplayRequest>| {
        let mut sessions = proxy.channel.streams();
        // A stream may take longer than a call.
        let request = caller.stream(request.into_inner());
        async move { sessions.get_replay(request).await }
    };
    let parts = caller.again(request, ask).await?;
    let (sender, sent) = mpsc::channel(BUFFERED);
    tokio::spawn(send(Arc::clone(&proxy), session_id, parts, sender, place));
    let body = Body::from_stream(ReceiverStream::new(sent));
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

/// Writes part after part, as fast as the client reads.
async fn send(
    proxy: Arc<Proxy>,
    session_id: String,
    mut parts: Streaming<v1::ReplayPart>,
    sender: mpsc::Sender<io::Result<Bytes>>,
    _place: Place,
) {
    let mut writer = Writer::new(session_id);
    loop {
        let part = tokio::select! {
            () = proxy.stop.cancelled() => return break_off(&sender, "the proxy stops").await,
            () = sender.closed() => return,
            part = parts.message() => part,
        };
        let part = match part {
            Ok(part) => part,
            Err(status) => {
                tracing::warn!(error = %status, "a replay broke off");
                return break_off(&sender, "the engine's answer broke off").await;
            }
        };
        let is_last = part.is_none();
        let written = match part {
            Some(part) => writer.part(part),
            None => Ok(writer.end()),
        };
        let Ok(text) = written else {
            return break_off(&sender, "a result cannot be shown").await;
        };
        if sender.send_timeout(Ok(Bytes::from(text)), UNREAD_FOR).await.is_err() || is_last {
            return;
        }
    }
}

/// Writes the answer's one object while its parts come: what is open, then what was committed.
struct Writer {
    head: Option<String>,
    in_effects: bool,
    comma: &'static str,
}

impl Writer {
    fn new(session_id: String) -> Self {
        let head = format!("{{\"session_id\":{}", serde_json::Value::from(session_id));
        Self { head: Some(head), in_effects: false, comma: "" }
    }

    fn part(&mut self, part: v1::ReplayPart) -> serde_json::Result<String> {
        let mut text = String::new();
        if let Some(head) = self.head.take() {
            text = format!("{head},\"next_step_index\":{},\"open\":[", part.next_step_index);
        }
        for call in part.open {
            self.item(&mut text, &Open::from(call))?;
        }
        if !part.calls.is_empty() {
            self.begin_effects(&mut text);
        }
        for call in part.calls {
            self.item(&mut text, &Replayed::from(call))?;
        }
        Ok(text)
    }

    fn end(&mut self) -> String {
        let mut text = String::new();
        self.begin_effects(&mut text);
        text.push_str("],\"complete\":true}");
        text
    }

    fn begin_effects(&mut self, text: &mut String) {
        if !std::mem::replace(&mut self.in_effects, true) {
            text.push_str("],\"effects\":[");
            self.comma = "";
        }
    }

    fn item(&mut self, text: &mut String, item: &impl Serialize) -> serde_json::Result<()> {
        text.push_str(std::mem::replace(&mut self.comma, ","));
        text.push_str(&serde_json::to_string(item)?);
        Ok(())
    }
}

/// Ends the connection in the middle of the answer, so that no client takes it for whole.
async fn break_off(sender: &mpsc::Sender<io::Result<Bytes>>, why: &'static str) {
    // A client that is gone needs no telling.
    let _ = sender.send_timeout(Err(io::Error::other(why)), UNREAD_FOR).await;
}
