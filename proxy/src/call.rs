//! Calls of the engine: who asks, for how long, and what may be asked again.

use std::{future::Future, net::IpAddr, time::Duration};

use http::{HeaderMap, HeaderName, header::AUTHORIZATION};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;
use tonic::{
    Code, Request, Response, Status,
    metadata::{Ascii, MetadataMap, MetadataValue},
    transport::{Channel, Endpoint},
};
use tonic_health::pb::health_client::HealthClient;
use undolog_core::{
    limits::{GRPC_MESSAGE_BYTES_MAX, REQUEST_DEADLINE_MS},
    reason::Reason,
};
use undolog_listen::Who;
use undolog_proto::v1::{
    undo_log_engine_client::UndoLogEngineClient, undo_log_operator_client::UndoLogOperatorClient,
    undo_log_proxy_client::UndoLogProxyClient, undo_log_registry_client::UndoLogRegistryClient,
    undo_log_sessions_client::UndoLogSessionsClient,
};
use uuid::Uuid;

use crate::{error::Refused, options::ProxyError};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);
/// A silent connection is asked whether it still lives.
const KEEPALIVE: Duration = Duration::from_secs(20);
/// Pauses before the second and third try of a call that may be repeated.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(50), Duration::from_millis(200), Duration::from_millis(500)];

/// How long a call is repeated at most: whoever asks decides what to do when an outage lasts.
const AGAIN_FOR: Duration = Duration::from_secs(5);

/// Headers that the engine sees as the caller sent them.
const PASSED_ON: [HeaderName; 4] = [
    HeaderName::from_static("x-api-key"),
    AUTHORIZATION,
    HeaderName::from_static("x-undolog-org-id"),
    HeaderName::from_static("x-undolog-session-id"),
];

/// What a stream of the engine may have sent before its client took it, and all streams together:
/// no stream that nobody reads is in the way of another one.
const STREAM_WINDOW: u32 = 256 * 1024;
const STREAMS_WINDOW: u32 = 512 * STREAM_WINDOW;

/// The way to the engine. Cheap to clone. Each connection is shared, and made again when it breaks.
#[derive(Debug, Clone)]
pub(crate) struct EngineChannel {
    /// What is answered soon.
    calls: Channel,
    /// Reports, heartbeats, ticks and look-ups of keys: nothing else is in their way.
    reports: Channel,
    /// Calls that wait for a decision.
    waits: Channel,
    /// Answers that are read as slowly as their clients read.
    streams: Channel,
}

impl EngineChannel {
    pub(crate) fn new(url: &str) -> Result<Self, ProxyError> {
        let endpoint = Endpoint::from_shared(url.to_owned())
            .map_err(|error| ProxyError::Engine { url: url.to_owned(), error })?
            .connect_timeout(CONNECT)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE)
            .keep_alive_while_idle(true)
            .tcp_nodelay(true);
        let streams = endpoint
            .clone()
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(STREAMS_WINDOW);
        Ok(Self {
            calls: endpoint.connect_lazy(),
            reports: endpoint.connect_lazy(),
            waits: endpoint.connect_lazy(),
            streams: streams.connect_lazy(),
        })
    }

    pub(crate) fn engine(&self) -> UndoLogEngineClient<Channel> {
        UndoLogEngineClient::new(self.calls.clone())
            .max_decoding_message_size(GRPC_MESSAGE_BYTES_MAX)
    }

    /// For Commit and Fail.
    pub(crate) fn reports(&self) -> UndoLogEngineClient<Channel> {
        UndoLogEngineClient::new(self.reports.clone())
            .max_decoding_message_size(GRPC_MESSAGE_BYTES_MAX)
    }

    /// For an Intercept that waits.
    pub(crate) fn waits(&self) -> UndoLogEngineClient<Channel> {
        UndoLogEngineClient::new(self.waits.clone())
            .max_decoding_message_size(GRPC_MESSAGE_BYTES_MAX)
    }

    pub(crate) fn sessions(&self) -> UndoLogSessionsClient<Channel> {
        UndoLogSessionsClient::new(self.calls.clone())
            .max_decoding_message_size(GRPC_MESSAGE_BYTES_MAX)
    }

    /// For heartbeats.
    pub(crate) fn heartbeats(&self) -> UndoLogSessionsClient<Channel> {
        UndoLogSessionsClient::new(self.reports.clone())
    }

    /// For events and replays.
    pub(crate) fn streams(&self) -> UndoLogSessionsClient<Channel> {
        UndoLogSessionsClient::new(self.streams.clone())
            .max_decoding_message_size(GRPC_MESSAGE_BYTES_MAX)
    }

    pub(crate) fn registry(&self) -> UndoLogRegistryClient<Channel> {
        UndoLogRegistryClient::new(self.calls.clone())
            .max_decoding_message_size(GRPC_MESSAGE_BYTES_MAX)
    }

    pub(crate) fn proxy(&self) -> UndoLogProxyClient<Channel> {
        UndoLogProxyClient::new(self.reports.clone())
    }

    pub(crate) fn health(&self) -> HealthClient<Channel> {
        HealthClient::new(self.reports.clone())
    }

    pub(crate) fn operator(&self) -> UndoLogOperatorClient<Channel> {
        UndoLogOperatorClient::new(self.calls.clone())
            .max_decoding_message_size(GRPC_MESSAGE_BYTES_MAX)
    }
}

/// Says that a call comes through this proxy, whose ticks the engine has heard.
fn insert_via(metadata: &mut MetadataMap, proxy: Uuid) {
    if let Ok(value) = proxy.to_string().parse() {
        metadata.insert("x-undolog-via", value);
    }
}

/// Who asks, as the engine will hear it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Caller {
    metadata: MetadataMap,
    session: String,
    /// Whose share of this proxy its requests take; `None`: nobody's, in development mode.
    pub(crate) who: Option<Who>,
}

impl Caller {
    /// From the headers of a request. `via`: our number, if the engine may count on our ticks.
    pub(crate) fn from_headers(headers: &HeaderMap, via: Option<Uuid>) -> Result<Self, Refused> {
        let mut metadata = MetadataMap::new();
        for name in &PASSED_ON {
            for value in headers.get_all(name) {
                let text = value.to_str().map(str::trim).map_err(|_| {
                    Refused::malformed(format!("the header {name} holds unprintable characters"))
                })?;
                if text.is_empty() {
                    continue;
                }
                let mut value: MetadataValue<Ascii> = text.parse().map_err(|_| {
                    Refused::malformed(format!("the header {name} holds unprintable characters"))
                })?;
                value.set_sensitive(true);
                let key = tonic::metadata::MetadataKey::from_bytes(name.as_str().as_bytes());
                let key = key.map_err(|_| Refused::malformed("a header cannot be passed on"))?;
                metadata.append(key, value);
            }
        }
        if let Some(proxy) = via {
            insert_via(&mut metadata, proxy);
        }
        let session = metadata.get("x-undolog-session-id").and_then(|value| value.to_str().ok());
        let session = session.unwrap_or_default().to_owned();
        Ok(Self { metadata, session, who: None })
    }

    /// A proxy itself, with a key of its own.
    pub(crate) fn executor(key: &SecretString, proxy: Uuid) -> Result<Self, ProxyError> {
        let mut value: MetadataValue<Ascii> =
            key.expose_secret().trim().parse().map_err(|_| ProxyError::Key)?;
        value.set_sensitive(true);
        let mut metadata = MetadataMap::new();
        metadata.insert("x-api-key", value);
        insert_via(&mut metadata, proxy);
        Ok(Self { metadata, session: String::new(), who: None })
    }

    /// A proxy beside a development server, which asks for no key.
    pub(crate) fn dev(proxy: Uuid) -> Self {
        let mut metadata = MetadataMap::new();
        insert_via(&mut metadata, proxy);
        Self { metadata, session: String::new(), who: None }
    }

    /// The same caller, and where it asks from.
    pub(crate) fn at(mut self, address: IpAddr) -> Self {
        if let Ok(value) = address.to_string().parse() {
            self.metadata.insert("x-undolog-client-ip", value);
        }
        self
    }

    /// The same caller with nothing but its key, for asking whose that is.
    pub(crate) fn key_only(&self) -> Self {
        let mut metadata = self.metadata.clone();
        for name in ["x-undolog-org-id", "x-undolog-session-id", "x-undolog-via"] {
            metadata.remove(name);
        }
        Self { metadata, session: String::new(), who: None }
    }

    /// The session that a request means: its own word, else the header's.
    pub(crate) fn session(&self, named: Option<String>) -> String {
        named.filter(|named| !named.is_empty()).unwrap_or_else(|| self.session.clone())
    }

    /// A request without a deadline, for streams.
    pub(crate) fn stream<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        *request.metadata_mut() = self.metadata.clone();
        request
    }

    fn request<T>(&self, message: T, deadline: Instant) -> Request<T> {
        let mut request = self.stream(message);
        request.set_timeout(deadline.saturating_duration_since(Instant::now()));
        request
    }

    /// Makes one call, once.
    pub(crate) async fn once<M, R, F>(
        &self,
        message: M,
        call: impl FnOnce(Request<M>) -> F,
    ) -> Result<R, Refused>
    where
        F: Future<Output = Result<Response<R>, Status>>,
    {
        let request = self.request(message, deadline());
        Ok(call(request).await.map_err(Refused::from)?.into_inner())
    }

    /// Makes a call that may be repeated: when the engine is away it is asked again, for a few
    /// seconds or until the last pause.
    pub(crate) async fn again<M, R, F>(
        &self,
        message: M,
        mut call: impl FnMut(Request<M>) -> F,
    ) -> Result<R, Refused>
    where
        M: Clone,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        let deadline = deadline();
        let again_until = Instant::now() + AGAIN_FOR;
        for pause in PAUSES {
            match call(self.request(message.clone(), deadline)).await {
                Ok(response) => return Ok(response.into_inner()),
                Err(status) => {
                    let refused = Refused::from(status);
                    let is_away = refused.code == Reason::Unavailable.as_str()
                        && refused.grpc != Some(Code::Unimplemented);
                    if !is_away || Instant::now() + pause >= again_until {
                        return Err(refused);
                    }
                    metrics::counter!("undolog_proxy_retries_total").increment(1);
                    tokio::time::sleep(pause).await;
                }
            }
        }
        Ok(call(self.request(message, deadline)).await.map_err(Refused::from)?.into_inner())
    }
}

/// One RPC: `rpc!(caller.again: proxy.sessions().get(request))`. `again` is for calls that may be
/// repeated, `once` for the others.
macro_rules! rpc {
    ($caller:ident.$how:ident: $proxy:ident.$service:ident().$method:ident($request:expr)) => {{
        let client = $proxy.channel.$service();
        let call = move |request| {
            let mut client = client.clone();
            async move { client.$method(request).await }
        };
        $caller.$how($request, call).await
    }};
}
pub(crate) use rpc;

fn deadline() -> Instant {
    Instant::now() + Duration::from_millis(REQUEST_DEADLINE_MS)
}

/// Whether the engine answered at all, whatever it said.
pub(crate) fn is_answer(status: &Status) -> bool {
    !matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled)
        && std::error::Error::source(status).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn empty_headers_count_as_none_and_the_body_names_the_session_first() {
        let mut headers = HeaderMap::new();
        headers.insert("x-api-key", HeaderValue::from_static(" "));
        headers.insert("x-undolog-org-id", HeaderValue::from_static(""));
        headers.insert("x-undolog-session-id", HeaderValue::from_static("s"));
        headers.insert("cookie", HeaderValue::from_static("a=b"));
        let caller = Caller::from_headers(&headers, None).expect("a caller");
        assert_eq!(caller.metadata.len(), 1);
        assert_eq!(caller.session(None), "s");
        assert_eq!(caller.session(Some(String::new())), "s");
        assert_eq!(caller.session(Some("b".to_owned())), "b");
    }

    #[test]
    fn a_key_is_not_shown() {
        let mut headers = HeaderMap::new();
        headers.insert("x-api-key", HeaderValue::from_static("ulk_secret"));
        let caller = Caller::from_headers(&headers, Some(Uuid::nil())).expect("a caller");
        assert!(!format!("{caller:?}").contains("ulk_secret"));
        headers.insert("x-api-key", HeaderValue::from_bytes(b"ulk_\xff").expect("a header"));
        assert!(Caller::from_headers(&headers, Some(Uuid::nil())).is_err());
    }
}
