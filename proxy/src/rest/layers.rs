//! What stands before every route: an id, a rate, a bound.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{MatchedPath, Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use http::{HeaderName, HeaderValue, header::AUTHORIZATION};
use tokio::time::Instant;
use undolog_core::reason::Reason;
use uuid::Uuid;

use super::answer;
use crate::{error::Refused, service::Proxy};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// A caller's own request id, at most.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// Routes that answer whatever the caller's rate is.
const PROBES: [&str; 3] = ["/health", "/ready", "/metrics"];

/// Gives each request an id, the caller's own if it can be one, and writes refusals down.
pub(super) async fn identified(request: Request, next: Next) -> Response {
    let began = Instant::now();
    let id = request_id(&request);
    let method = request.method().clone();
    let response = next.run(request).await;
    let route = response.extensions().get::<Route>().map_or("unknown", |route| route.0.as_str());
    let route = route.to_owned();
    let mut response = answer::finish(response, &id);
    let status = response.status();
    let took = began.elapsed();
    if status.is_server_error() {
        tracing::warn!(
            request.id = %id, %method, route, status = status.as_u16(), "a request was not answered"
        );
    }
    let labels = [("route", route), ("status", status.as_u16().to_string())];
    metrics::counter!("undolog_http_requests_total", &labels).increment(1);
    metrics::histogram!("undolog_http_duration_seconds", "route" => labels[0].1.clone())
        .record(took.as_secs_f64());
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

/// The route of a response, for metrics.
#[derive(Clone)]
struct Route(String);

fn request_id(request: &Request) -> String {
    let given = request.headers().get(REQUEST_ID).and_then(|value| value.to_str().ok());
    let is_id = |text: &&str| {
        !text.is_empty()
            && text.len() <= REQUEST_ID_BYTES_MAX
            && text.bytes().all(|b| b.is_ascii_graphic())
    };
    given.filter(is_id).map_or_else(|| Uuid::new_v4().to_string(), str::to_owned)
}

/// Lets in what may come in now.
pub(super) async fn limits(
    State(proxy): State<Arc<Proxy>>,
    path: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    let route = path.map_or_else(|| "unknown".to_owned(), |path| path.as_str().to_owned());
    let mut response = if PROBES.contains(&route.as_str()) {
        next.run(request).await
    } else {
        match admit(&proxy, &request) {
            Ok(_place) => next.run(request).await,
            Err(refused) => refused.into_response(),
        }
    };
    response.extensions_mut().insert(Route(route));
    response
}

fn admit(proxy: &Proxy, request: &Request) -> Result<tokio::sync::OwnedSemaphorePermit, Refused> {
    if let Some(rates) = &proxy.rates {
        rates.take(key_of(request)).map_err(too_fast)?;
    }
    Arc::clone(&proxy.in_flight).try_acquire_owned().map_err(|_| {
        Refused::because(Reason::Unavailable, "this proxy works on as many requests as it may")
    })
}

fn too_fast(wait: Duration) -> Refused {
    let mut refused = Refused::from(undolog_core::Refusal::new(Reason::RateLimited));
    refused.retry_after_ms = u64::try_from(wait.as_millis()).ok().map(|ms| ms.max(1));
    refused
}

/// Requests without a key share a rate.
fn key_of(request: &Request) -> &[u8] {
    let headers = request.headers();
    let key = headers.get(API_KEY).filter(|key| !key.is_empty());
    key.or_else(|| headers.get(AUTHORIZATION)).map_or(b"", HeaderValue::as_bytes)
}
