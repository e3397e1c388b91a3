//! What handlers take from a request; every failure is the documented body.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{ConnectInfo, FromRequest, FromRequestParts, Path, Query, Request},
};
use futures::StreamExt as _;
use http::{StatusCode, header::CONTENT_LENGTH, request::Parts};
use serde::de::DeserializeOwned;
use undolog_core::{limits::GRPC_MESSAGE_BYTES_MAX, reason::Reason};

use crate::{call::Caller, error::Refused, service::Proxy};

/// One request's body: what fits into one message to the engine, and the envelope around it.
const BODY_BYTES_MAX: usize = GRPC_MESSAGE_BYTES_MAX - 64 * 1024;
/// What is read of a body that is too large.
const DRAINED_BYTES_MAX: usize = 4 * BODY_BYTES_MAX;
/// A body is sent within this time.
const BODY_TIME: Duration = Duration::from_secs(30);
/// What an error says of the body, at most.
const QUOTED_CHARS: usize = 200;

impl FromRequestParts<Arc<Proxy>> for Caller {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, proxy: &Arc<Proxy>) -> Result<Self, Refused> {
        let caller = Self::from_headers(&parts.headers, proxy.via())?;
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        Ok(match peer {
            Some(ConnectInfo(peer)) => caller.at(proxy.client_ip(peer.ip(), &parts.headers)),
            None => caller,
        })
    }
}

/// One part of the path.
pub(crate) struct Named(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let Path(named) = path.map_err(|error| Refused::malformed(error.body_text()))?;
        Ok(Self(named))
    }
}

/// Several parts of the path.
pub(crate) struct Placed<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Placed<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        let Path(placed) = path.map_err(|error| Refused::malformed(error.body_text()))?;
        Ok(Self(placed))
    }
}

/// The query.
pub(crate) struct Asked<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        let Query(asked) = query.map_err(|error| Refused::malformed(error.body_text()))?;
        Ok(Self(asked))
    }
}

/// The body, read as JSON whatever it calls itself. An empty one is an empty object.
pub(crate) struct Told<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Told<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Refused> {
        let declared = request.headers().get(CONTENT_LENGTH);
        let declared = declared.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        if declared.is_some_and(|length| length > DRAINED_BYTES_MAX) {
            return Err(too_large());
        }
        let bytes = read(request.into_body()).await?;
        let bytes: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        serde_json::from_slice(bytes).map(Self).map_err(|error| {
            let text: String = error.to_string().chars().take(QUOTED_CHARS).collect();
            Refused::malformed(format!("the body: {text}"))
        })
    }
}

async fn read(body: Body) -> Result<Vec<u8>, Refused> {
    tokio::time::timeout(BODY_TIME, whole(body)).await.unwrap_or_else(|_| {
        Err(Refused::malformed("the body did not arrive in time")
            .with_status(StatusCode::REQUEST_TIMEOUT))
    })
}

/// Keeps what may be kept. What is too much is still read for a while: a client that is cut off
/// while it sends does not hear why.
async fn whole(body: Body) -> Result<Vec<u8>, Refused> {
    let mut chunks = body.into_data_stream();
    let (mut bytes, mut length) = (Vec::new(), 0);
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| Refused::malformed("the body did not arrive whole"))?;
        length += chunk.len();
        if length > DRAINED_BYTES_MAX {
            break;
        }
        if length <= BODY_BYTES_MAX {
            bytes.extend_from_slice(&chunk);
        } else {
            bytes = Vec::new();
        }
    }
    if length > BODY_BYTES_MAX { Err(too_large()) } else { Ok(bytes) }
}

fn too_large() -> Refused {
    Refused::because(
        Reason::LimitExceeded,
        format!("the body is larger than {BODY_BYTES_MAX} bytes"),
    )
}
