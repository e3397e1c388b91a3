//! The gate: every request of every service passes it, and what is not listed is refused.
//!
//! It answers who calls, whether this role may call this at all, and until when. The organisation
//! comes from the key alone; that a request names no other one is checked where its body is read.

use std::{
    future::Future,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderMap, Request, Response, header::AUTHORIZATION};
use tokio::time::Instant;
use tonic::{Code, Status, body::Body, transport::server::TcpConnectInfo};
use tower_layer::Layer;
use tower_service::Service;
use undolog_core::{
    limits::REQUEST_DEADLINE_MS,
    networks::Networks,
    presented::presented_key,
    reason::{Reason, Refusal},
    role::{Rpc, allows},
};
use undolog_listen::{Place, Places, Who};
use undolog_store::{
    auth::{Authenticator, Identity},
    guard,
    owner::KeyHash,
};

use crate::{
    answer::{Answer, Revoked, revoked},
    call::take,
    status,
};

/// Requests that one engine works on at once, those that wait for an effect included.
const IN_FLIGHT_MAX: usize = 4_096;

/// Streams that callers without a key have open at once.
const PUBLIC_STREAMS_MAX: usize = 256;

/// What anybody may call: whether this server is healthy.
const PUBLIC: &[&str] = &["/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/List"];

/// What anybody may call and keep open, each address some of it: health as it changes, and which
/// services there are.
const PUBLIC_STREAMS: &[&str] = &[
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// The header of a key; `authorization: Bearer` is the other way.
const API_KEY: http::HeaderName = http::HeaderName::from_static("x-api-key");

/// The client's address, as a proxy passes it on.
const CLIENT_IP: http::HeaderName = http::HeaderName::from_static("x-undolog-client-ip");

/// Who calls, as the gate found out.
#[derive(Debug, Clone)]
pub(crate) enum Presented {
    /// The owner of a key.
    Key(Arc<Identity>),
    /// A caller without a key, in development mode.
    Dev,
}

impl Presented {
    /// Whose share of the engine a call takes.
    pub(crate) fn who(&self) -> Option<Who> {
        match self {
            Self::Key(identity) => Some(Who { org_id: identity.org_id, key_id: identity.key_id }),
            Self::Dev => None,
        }
    }
}

/// What the gate tells the services about a request that it let in.
#[derive(Debug, Clone)]
pub(crate) struct Admitted {
    pub(crate) presented: Presented,
    pub(crate) deadline: Instant,
    /// The client's address, when a proxy says it whose word is believed.
    pub(crate) client_ip: Option<IpAddr>,
}

/// Puts the gate before every service.
#[derive(Debug, Clone)]
pub(crate) struct GateLayer {
    keeper: Arc<Keeper>,
}

#[derive(Debug)]
struct Keeper {
    authenticator: Authenticator,
    dev: bool,
    trusted_proxies: Networks,
    in_flight: Arc<Places>,
    public: Arc<Places>,
    under_way: UnderWay,
}

/// A request that was let in.
struct LetIn {
    presented: Presented,
    /// The key's hash, by which it is asked for again while the call lasts.
    hash: Option<KeyHash>,
    place: Option<Place>,
    rpc: Rpc,
}

impl GateLayer {
    /// A gate that lets in owners of keys and, in development, everybody.
    pub(crate) fn new(authenticator: Authenticator, dev: bool, trusted_proxies: Networks) -> Self {
        let in_flight = Places::new("calls under way", IN_FLIGHT_MAX);
        let under_way = UnderWay::default();
        let public = Places::new("public streams", PUBLIC_STREAMS_MAX);
        let keeper = Keeper { authenticator, dev, trusted_proxies, in_flight, public, under_way };
        Self { keeper: Arc::new(keeper) }
    }

    /// The calls that are worked on.
    pub(crate) fn under_way(&self) -> UnderWay {
        self.keeper.under_way.clone()
    }
}

/// Counts the calls that are worked on: a stream only until it begins.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnderWay(Arc<()>);

impl UnderWay {
    /// Whether there is none but those who may ask.
    pub(crate) fn is_none(&self) -> bool {
        // The gate and whoever asks hold one each.
        Arc::strong_count(&self.0) <= 2
    }
}

impl<S> Layer<S> for GateLayer {
    type Service = Gate<S>;

    fn layer(&self, inner: S) -> Gate<S> {
        Gate { inner, keeper: Arc::clone(&self.keeper) }
    }
}

/// The gate before one service.
#[derive(Debug, Clone)]
pub(crate) struct Gate<S> {
    inner: S,
    keeper: Arc<Keeper>,
}

impl<S> Service<Request<Body>> for Gate<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // The clone takes over the readiness that was polled.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        let keeper = Arc::clone(&self.keeper);
        Box::pin(async move { keeper.pass(inner, request).await })
    }
}

impl Keeper {
    async fn pass<S>(
        &self,
        mut inner: S,
        mut request: Request<Body>,
    ) -> Result<Response<Body>, S::Error>
    where
        S: Service<Request<Body>, Response = Response<Body>>,
    {
        if PUBLIC.contains(&request.uri().path()) {
            return inner.call(request).await;
        }
        let peer = peer(&request);
        if PUBLIC_STREAMS.contains(&request.uri().path()) {
            let client = self.client_ip(request.headers(), peer).or(peer);
            return match take(&self.public, client.map(Who::at)) {
                Ok(place) => Ok(kept(inner.call(request).await?, None, Some(place))),
                Err(status) => Ok(status.into_http()),
            };
        }
        let _under_way = self.under_way.clone();
        let began = Instant::now();
        let deadline = began + time_left(request.headers());
        let rpc = Rpc::from_path(request.uri().path());
        let name = rpc.map_or("unknown", Rpc::as_str);
        let response = match self.admit(rpc, request.headers()).await {
            Ok(LetIn { presented, hash, place, rpc }) => {
                let client_ip = self.client_ip(request.headers(), peer);
                request.extensions_mut().insert(Admitted { presented, deadline, client_ip });
                let hash = hash.filter(|_| guard!("gate.revoked"));
                let revoked = || revoked(self.authenticator.clone(), hash);
                let answered = tokio::select! {
                    biased;
                    answered = tokio::time::timeout_at(deadline, inner.call(request)) => {
                        answered.map_err(|_| Reason::DeadlineExceeded)
                    }
                    () = revoked(), if rpc == Rpc::Intercept => Err(Reason::Unauthenticated),
                };
                drop(place);
                match answered {
                    Ok(response) if is_stream(rpc) => kept(response?, Some(revoked()), None),
                    Ok(response) => response?,
                    Err(reason) => status::of_reason(reason).into_http(),
                }
            }
            Err(status) => status.into_http(),
        };
        record(name, began.elapsed(), &response);
        Ok(response)
    }

    async fn admit(&self, rpc: Option<Rpc>, headers: &HeaderMap) -> Result<LetIn, Status> {
        let (presented, hash) = self.who(headers).await?;
        // Nothing that is not in the table exists, whatever else was mounted.
        let rpc = rpc.ok_or_else(|| Status::new(Code::Unimplemented, "there is no such call"))?;
        if let Presented::Key(identity) = &presented {
            check_org(headers, identity)?;
            if guard!("gate.role") && !allows(identity.role, rpc) {
                let refusal = Refusal::new(Reason::PermissionDenied)
                    .with("role", identity.role)
                    .with("rpc", rpc);
                return Err(status::of_refusal(&refusal));
            }
        }
        // What was done is written down however much else there is to do.
        let is_free =
            matches!(rpc, Rpc::Commit | Rpc::Fail | Rpc::Heartbeat | Rpc::Tick | Rpc::Authenticate);
        let place = match is_free {
            true => None,
            false => Some(take(&self.in_flight, presented.who())?),
        };
        Ok(LetIn { presented, hash, place, rpc })
    }

    /// The client's address as a proxy passes it on. Anybody can claim one, so it is believed only
    /// when it comes from where our proxies are.
    fn client_ip(&self, headers: &HeaderMap, peer: Option<IpAddr>) -> Option<IpAddr> {
        let is_believed = peer.is_some_and(|peer| self.trusted_proxies.contains(peer));
        let mut named = headers.get_all(CLIENT_IP).iter();
        let (first, other) = (named.next()?, named.next());
        if (is_believed || !guard!("gate.client_ip")) && other.is_none() {
            first.to_str().ok()?.trim().parse().ok()
        } else {
            None
        }
    }

    async fn who(&self, headers: &HeaderMap) -> Result<(Presented, Option<KeyHash>), Status> {
        let texts = |name| headers.get_all(name).iter().map(|value| value.to_str().ok());
        let unauthenticated = || status::of_reason(Reason::Unauthenticated);
        let key = presented_key(texts(API_KEY), texts(AUTHORIZATION));
        let Some(key) = key.map_err(|_| unauthenticated())? else {
            return if self.dev { Ok((Presented::Dev, None)) } else { Err(unauthenticated()) };
        };
        let hash = KeyHash::of(key);
        let identity = self.authenticator.authenticate(hash).await;
        match identity.map_err(|error| status::of_error(&error))? {
            Some(identity) => Ok((Presented::Key(identity), hash)),
            None => Err(unauthenticated()),
        }
    }
}

fn is_stream(rpc: Rpc) -> bool {
    matches!(rpc, Rpc::WatchEvents | Rpc::WatchApproval | Rpc::GetReplay)
}

/// An answer that ends with its caller's key, and holds a place.
fn kept(
    response: Response<Body>,
    revoked: Option<Revoked>,
    place: Option<Place>,
) -> Response<Body> {
    response.map(|body| Body::new(Answer { body, revoked, _place: place, has_ended: false }))
}

/// The header of the documented HTTP face names the organisation too; it must be the key's.
fn check_org(headers: &HeaderMap, identity: &Identity) -> Result<(), Status> {
    for value in headers.get_all("x-undolog-org-id") {
        let named = value.to_str().unwrap_or("\u{fffd}").trim();
        if !crate::call::names(named, identity.org_id, &identity.org_slug) {
            return Err(status::of_reason(Reason::OrgMismatch));
        }
    }
    Ok(())
}

fn peer(request: &Request<Body>) -> Option<IpAddr> {
    let connection = request.extensions().get::<TcpConnectInfo>()?;
    connection.remote_addr().map(|address| address.ip())
}

/// The caller's `grpc-timeout`, at most ours.
fn time_left(headers: &HeaderMap) -> Duration {
    let ours = Duration::from_millis(REQUEST_DEADLINE_MS);
    let asked = headers.get("grpc-timeout").and_then(|value| value.to_str().ok()).and_then(timeout);
    asked.map_or(ours, |asked| asked.min(ours))
}

/// A `grpc-timeout`: up to eight digits and a unit.
fn timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3_600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

fn record(rpc: &'static str, took: Duration, response: &Response<Body>) {
    let code = response.extensions().get::<Status>().map_or(Code::Ok, Status::code);
    let code = format!("{code:?}");
    metrics::counter!("undolog_rpc_total", "rpc" => rpc, "code" => code).increment(1);
    metrics::histogram!("undolog_rpc_duration_seconds", "rpc" => rpc).record(took.as_secs_f64());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, http::HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn deadlines_are_read_and_bounded() {
        let left = |value: &'static str| time_left(&headers(&[("grpc-timeout", value)]));
        assert_eq!(left("250m"), Duration::from_millis(250));
        assert_eq!(left("1S"), Duration::from_secs(1));
        assert_eq!(left("99999999H"), Duration::from_secs(30));
        for bad in ["", "m", "S1", "123456789S", "1x", "-1S", "1é"] {
            assert_eq!(timeout(bad), None, "{bad}");
        }
    }
}
