//! `GET /sessions/{id}/replay`: all stored results of a session in one streamed answer, for a
//! client that resumes.

use std::{convert::Infallible, sync::Arc};

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
use undolog_core::limits::PAGE_MAX;
use undolog_proto::v1;
use utoipa::ToSchema;

use super::{answer::Errors, extract::Named, json::Json, shown::Wire as _};
use crate::{
    call::{Caller, rpc},
    error::Refused,
    service::Proxy,
};

/// Pages on their way to one client.
const BUFFERED: usize = 2;

/// Everything that a session's calls gave.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Replay {
    session_id: String,
    /// Committed calls, in the order in which they were recorded.
    effects: Vec<Replayed>,
    /// The list is whole. A list that broke off ends before this.
    complete: bool,
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
    result: Output,
}

/// A stored result.
#[derive(Debug, Serialize, ToSchema)]
struct Output {
    success: bool,
    output: Json,
    error: Option<String>,
    duration_ms: u64,
}

impl From<v1::Effect> for Replayed {
    fn from(effect: v1::Effect) -> Self {
        Self {
            effect_id: effect.effect_id,
            step_index: effect.step_index,
            step_key: Option::wire(effect.step_key),
            call_signature: effect.call_signature,
            tool_name: effect.tool_name,
            tool_version: effect.tool_version,
            attempt: effect.attempt,
            result: Output {
                success: true,
                output: Json::stored(effect.result),
                error: Option::wire(effect.error),
                duration_ms: effect.duration_ms,
            },
        }
    }
}

/// Streams all stored results of a session.
#[utoipa::path(get, path = "/sessions/{id}/replay", tag = "sessions",
    params(("id" = String, Path, format = Uuid, description = "The session")),
    responses((status = 200, body = Replay), Errors))]
pub(super) async fn replay(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Named(session_id): Named,
) -> Result<Response, Refused> {
    // The first page decides the status; what comes after it can only break off.
    let first = page(&proxy, &caller, &session_id, String::new()).await?;
    let (sender, pages) = mpsc::channel::<Result<Bytes, Infallible>>(BUFFERED);
    tokio::spawn(async move { send(&proxy, &caller, session_id, first, &sender).await });
    let body = Body::from_stream(ReceiverStream::new(pages));
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

async fn page(
    proxy: &Proxy,
    caller: &Caller,
    session_id: &str,
    page_token: String,
) -> Result<v1::ListEffectsResponse, Refused> {
    let request = v1::ListEffectsRequest {
        org_id: String::new(),
        session_id: session_id.to_owned(),
        page_size: PAGE_MAX,
        page_token,
    };
    rpc!(caller.again: proxy.sessions().list_effects(request))
}

/// Writes page after page, as fast as the client reads.
async fn send(
    proxy: &Proxy,
    caller: &Caller,
    session_id: String,
    first: v1::ListEffectsResponse,
    sender: &mpsc::Sender<Result<Bytes, Infallible>>,
) {
    let mut text = format!("{{\"session_id\":{},\"effects\":[", quoted(&session_id));
    let mut is_first = true;
    let mut at = first;
    loop {
        for effect in at.effects {
            if effect.state != "committed" {
                continue;
            }
            let Ok(shown) = serde_json::to_string(&Replayed::from(effect)) else { return };
            if !std::mem::take(&mut is_first) {
                text.push(',');
            }
            text.push_str(&shown);
        }
        let is_last = at.next_page_token.is_empty();
        if is_last {
            text.push_str("],\"complete\":true}");
        }
        if sender.send(Ok(Bytes::from(std::mem::take(&mut text)))).await.is_err() || is_last {
            return;
        }
        match page(proxy, caller, &session_id, at.next_page_token).await {
            Ok(next) => at = next,
            Err(refused) => {
                tracing::warn!(code = %refused.code, "a replay broke off");
                return;
            }
        }
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
