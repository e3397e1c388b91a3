//! `GET /values/{of}/{id}/{field}`: one field of a row, streamed, however large.

use std::{io, sync::Arc};

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use futures::stream;
use http::{
    HeaderValue, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG},
};
use serde::Deserialize;
use undolog_proto::v1;
use utoipa::IntoParams;

use super::{answer::Errors, extract::Placed};
use crate::{
    call::{Caller, rpc},
    error::Refused,
    service::Proxy,
};

/// Fields that are texts for people; all others are JSON.
const TEXTS: [&str; 9] = [
    "claimed_actor",
    "error",
    "last_error",
    "skip_reason",
    "url",
    "note",
    "detail",
    "irreversibility_reason",
    "estimated_impact",
];

/// Which value.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct Which {
    /// `effect`, `undo_entry`, `next_call`, `dead_letter`, `approval` or `approval_event`.
    of: String,
    /// The row's id; of a `next_call` that of its undo entry.
    #[param(format = Uuid)]
    id: String,
    /// The field, as `fields_left_out` names it.
    field: String,
}

impl Which {
    fn from(&self, offset: u64) -> v1::GetValueRequest {
        v1::GetValueRequest {
            org_id: String::new(),
            of: self.of.clone(),
            id: self.id.clone(),
            field: self.field.clone(),
            offset,
        }
    }
}

/// Reads one field of a row, as it was recorded: what another answer left out because of its size.
#[utoipa::path(get, path = "/values/{of}/{id}/{field}", tag = "sessions", params(Which),
    responses(
        (status = 200, description = "The value: JSON, or a text", body = serde_json::Value),
        (status = 204, description = "There is no value"), Errors))]
pub(super) async fn value(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Placed(which): Placed<Which>,
) -> Result<Response, Refused> {
    let first = rpc!(caller.again: proxy.sessions().get_value(which.from(0)))?;
    if first.total_bytes == 0 {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let kind = match which.field.as_str() {
        field if TEXTS.contains(&field) => "text/plain; charset=utf-8",
        _ => "application/json",
    };
    let (total, digest) = (first.total_bytes, first.digest.clone());
    let tag = HeaderValue::from_str(&format!("\"{digest}\""));
    let reader = Reader { proxy, caller, which, digest, at: 0, next: Some(first.part) };
    let mut response = Body::from_stream(stream::try_unfold(reader, next)).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(total));
    if let Ok(tag) = tag {
        headers.insert(ETAG, tag);
    }
    Ok(response)
}

/// One value on its way to one client, which is read on only as fast as the client does.
struct Reader {
    proxy: Arc<Proxy>,
    caller: Caller,
    which: Which,
    digest: String,
    at: u64,
    /// What was read and not sent.
    next: Option<Vec<u8>>,
}

async fn next(mut reader: Reader) -> io::Result<Option<(Bytes, Reader)>> {
    let part = match reader.next.take() {
        Some(part) => part,
        None => reader.read().await?,
    };
    if part.is_empty() {
        return Ok(None);
    }
    reader.at += part.len() as u64;
    Ok(Some((Bytes::from(part), reader)))
}

impl Reader {
    /// The next part. A value that became another one meanwhile ends the connection, so that no
    /// client takes two halves for a whole.
    async fn read(&self) -> io::Result<Vec<u8>> {
        let (proxy, caller) = (&self.proxy, &self.caller);
        let answer = rpc!(caller.again: proxy.sessions().get_value(self.which.from(self.at)));
        let answer = answer.map_err(|refused| {
            tracing::warn!(code = %refused.code, "a value broke off");
            io::Error::other("the engine's answer broke off")
        })?;
        if answer.digest == self.digest {
            return Ok(answer.part);
        }
        Err(io::Error::other("the value has changed"))
    }
}
