//! What stands before every route: an id, a rate, a bound.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use axum::{
    extract::{ConnectInfo, MatchedPath, Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{AUTHORIZATION, CONNECTION},
};
use http_body_util::BodyExt as _;
use tokio::time::Instant;
use undolog_core::{
    networks::client_network,
    presented::presented_key,
    reason::{Reason, Refusal},
};
use undolog_listen::{Peer, Place, hold};
use uuid::Uuid;

use super::{answer, extract::BodyPlaces};
use crate::{call::Caller, error::Refused, keys::KeyId, rate::too_fast, service::Proxy};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// A caller's own request id, at most.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// Routes that answer whatever the caller's rate is.
const PROBES: [&str; 3] = ["/health", "/ready", "/metrics"];

/// The document, which everybody may read, each address at its rate.
const DOCUMENT: &str = "/openapi.json";
/// Reports on what was done: they are taken however much else there is to do.
const REPORTS: [&str; 3] =
    ["/effects/{id}/commit", "/effects/{id}/fail", "/sessions/{id}/heartbeat"];
/// What is read of the body of a request that is refused unread, and for how long.
const TURNED_AWAY_BYTES: usize = 64 * 1024;
const TURNED_AWAY_TIME: Duration = Duration::from_secs(1);

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

/// Lets in what may come in now. Whose key a request holds is known before its body is read.
pub(super) async fn limits(
    State(proxy): State<Arc<Proxy>>,
    path: Option<MatchedPath>,
    mut request: Request,
    next: Next,
) -> Response {
    let route = path.as_ref().map_or("unknown", MatchedPath::as_str).to_owned();
    // What does not exist is not there for anybody.
    let mut response = if path.is_none() || PROBES.contains(&route.as_str()) {
        next.run(request).await
    } else if route == DOCUMENT {
        match proxy.documents.take(client_network(address(&proxy, &request))) {
            Ok(()) => next.run(request).await,
            Err(wait) => too_fast(wait).into_response(),
        }
    } else {
        match admit(&proxy, &route, &mut request).await {
            Ok((key, held)) => {
                let response = next.run(request).await;
                if response.status() == StatusCode::UNAUTHORIZED {
                    proxy.keys.forget(key);
                } else if response.status().is_success() {
                    proxy.keys.confirm(key);
                }
                hold(response, held)
            }
            Err(refused) => turn_away(request, refused).await,
        }
    };
    response.extensions_mut().insert(Route(route));
    response
}

/// What a request holds until its answer has been sent.
struct HeldPlaces {
    _in_flight: Option<Place>,
    _body: Arc<BodyPlaces>,
}

async fn admit(
    proxy: &Proxy,
    route: &str,
    request: &mut Request,
) -> Result<(KeyId, HeldPlaces), Refused> {
    let address = address(proxy, request);
    let mut caller = Caller::from_headers(request.headers(), proxy.via())?.at(address);
    let key = proxy.keys.id(key_of(request.headers())?);
    caller.who = proxy.keys.who(&proxy.channel, &caller, key, address).await?;
    if let Some(rates) = &proxy.rates {
        rates.take(key.0).map_err(too_fast)?;
    }
    // What was done is written down however much else there is to do.
    let is_report = REPORTS.contains(&route);
    let in_flight = if is_report { None } else { Some(proxy.in_flight.take(caller.who)?) };
    let bodies = if is_report { &proxy.report_bodies } else { &proxy.bodies };
    let body = Arc::new(BodyPlaces::new(bodies, caller.who));
    request.extensions_mut().insert(Arc::clone(&body));
    request.extensions_mut().insert(caller);
    Ok((key, HeldPlaces { _in_flight: in_flight, _body: body }))
}

/// Who asks, as far as it can be believed.
fn address(proxy: &Proxy, request: &Request) -> IpAddr {
    let peer = request.extensions().get::<ConnectInfo<Peer>>();
    let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0.address.ip());
    proxy.client_ip(peer, request.headers())
}

/// The presented key, read as the engine reads it.
fn key_of(headers: &HeaderMap) -> Result<Option<&str>, Refused> {
    let texts = |name| headers.get_all(name).iter().map(|value| value.to_str().ok());
    let key = presented_key(texts(API_KEY), texts(AUTHORIZATION));
    key.map_err(|_| Refusal::new(Reason::Unauthenticated).into())
}

/// Refuses a request. A small body is read, because a client that is cut off while it sends does
/// not hear why; where there is more of it, the connection ends.
async fn turn_away(request: Request, refused: Refused) -> Response {
    let reading = http_body_util::Limited::new(request.into_body(), TURNED_AWAY_BYTES).collect();
    let is_whole = matches!(tokio::time::timeout(TURNED_AWAY_TIME, reading).await, Ok(Ok(_)));
    let mut response = refused.into_response();
    if !is_whole {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
