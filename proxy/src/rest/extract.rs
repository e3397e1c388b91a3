//! What handlers take from a request; every failure is the documented body.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    body::Body,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
};
use futures::StreamExt as _;
use http::{
    StatusCode,
    header::{CONTENT_ENCODING, CONTENT_LENGTH},
    request::Parts,
};
use serde::de::DeserializeOwned;
use undolog_core::{limits::GRPC_MESSAGE_BYTES_MAX, reason::Reason};

use undolog_listen::{Place, Places, Who};

use super::json::Object;
use crate::{call::Caller, error::Refused};

/// One request's body: what fits into one message to the engine, and the envelope around it.
const BODY_BYTES_MAX: usize = GRPC_MESSAGE_BYTES_MAX - 64 * 1024;
/// What is read of a body that is too large.
const DRAINED_BYTES_MAX: usize = 4 * BODY_BYTES_MAX;
/// What a body whose length is not known takes of the memory for bodies at a time.
const BODY_STEP_BYTES: usize = 64 * 1024;
/// What some editors and shells put before a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// A body is sent within this time.
const BODY_TIME: Duration = Duration::from_secs(30);
/// What an error says of the body, at most.
const QUOTED_CHARS: usize = 200;

/// Whoever asked, as the layer before all routes found out.
impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Refused> {
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| Refused::because(Reason::Internal, "nobody looked at the key"))
    }
}

/// The part of all bodies' memory that one request's body takes, until its answer has been sent.
#[derive(Debug)]
pub(super) struct BodyPlaces {
    places: Arc<Places>,
    who: Option<Who>,
    held: Mutex<Vec<Place>>,
}

impl BodyPlaces {
    pub(super) fn new(places: &Arc<Places>, who: Option<Who>) -> Self {
        Self { places: Arc::clone(places), who, held: Mutex::default() }
    }

    /// Takes as many KiB more.
    fn take(&self, kib: usize) -> Result<(), Refused> {
        let place = self.places.take_many(self.who, kib)?;
        self.held.lock().unwrap_or_else(PoisonError::into_inner).push(place);
        Ok(())
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

/// The body, read as a JSON object whatever it calls itself. An empty one is an empty object.
pub(crate) struct Told<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Told<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Refused> {
        if let Some(coding) = request.headers().get(CONTENT_ENCODING)
            && coding.as_bytes() != b"identity"
        {
            let why = "a body is sent as it is: this server decodes no Content-Encoding";
            return Err(Refused::malformed(why).with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        let declared = request.headers().get(CONTENT_LENGTH);
        let declared = declared.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        if declared.is_some_and(|length| length > DRAINED_BYTES_MAX) {
            return Err(too_large());
        }
        let places = request.extensions().get::<Arc<BodyPlaces>>().cloned();
        let bytes = read(request.into_body(), declared, places.as_deref()).await?;
        object(&bytes).map(Self)
    }
}

fn object<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refused> {
    if bytes.starts_with(BYTE_ORDER_MARK) {
        return Err(Refused::malformed("the body begins with a byte order mark; send it without"));
    }
    let bytes = if bytes.is_empty() { b"{}" } else { bytes };
    serde_json::from_slice(bytes).map(|Object(told)| told).map_err(|error| {
        let text: String = error.to_string().chars().take(QUOTED_CHARS).collect();
        Refused::malformed(format!("the body: {text}"))
    })
}

async fn read(
    body: Body,
    declared: Option<usize>,
    places: Option<&BodyPlaces>,
) -> Result<Vec<u8>, Refused> {
    tokio::time::timeout(BODY_TIME, whole(body, declared, places)).await.unwrap_or_else(|_| {
        Err(Refused::malformed("the body did not arrive in time")
            .with_status(StatusCode::REQUEST_TIMEOUT))
    })
}

/// Keeps what may be kept. What is too much is still read for a while: a client that is cut off
/// while it sends does not hear why.
async fn whole(
    body: Body,
    declared: Option<usize>,
    places: Option<&BodyPlaces>,
) -> Result<Vec<u8>, Refused> {
    let mut chunks = body.into_data_stream();
    let (mut bytes, mut length, mut taken) = (Vec::new(), 0, 0);
    let declared = declared.unwrap_or_default().min(BODY_BYTES_MAX);
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| Refused::malformed("the body did not arrive whole"))?;
        length += chunk.len();
        if length > DRAINED_BYTES_MAX {
            break;
        }
        if length > BODY_BYTES_MAX {
            bytes = Vec::new();
            continue;
        }
        if let Some(places) = places
            && length > taken
        {
            let more = declared.max(length + BODY_STEP_BYTES).min(BODY_BYTES_MAX) - taken;
            places.take(more.div_ceil(1024))?;
            taken += more;
        }
        bytes.extend_from_slice(&chunk);
    }
    if length > BODY_BYTES_MAX { Err(too_large()) } else { Ok(bytes) }
}

fn too_large() -> Refused {
    Refused::because(
        Reason::LimitExceeded,
        format!("the body is larger than {BODY_BYTES_MAX} bytes"),
    )
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    struct Named {
        name: String,
        of: Option<Object<Box<Named>>>,
    }

    #[test]
    fn a_body_is_an_object_and_so_is_each_of_its_parts() {
        let read = |text: &str| object::<Named>(text.as_bytes()).map_err(|refused| refused.message);
        assert!(read(r#" {"name": "a", "of": {"name": "b"}}"#).is_ok());
        for array in [r#"["a", null]"#, r#"{"name": "a", "of": ["b", null]}"#, r#""a""#, "[]"] {
            let message = read(array).expect_err(array);
            assert!(message.contains("an object"), "{array}: {message}");
        }
        let message = read("\u{feff}{}").expect_err("a mark");
        assert!(message.contains("byte order mark"), "{message}");
    }
}
