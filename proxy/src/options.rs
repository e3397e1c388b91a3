//! How a proxy is started, and why it may refuse to.

use std::net::SocketAddr;

use http::HeaderValue;
use secrecy::SecretString;
use undolog_core::networks::Networks;
use undolog_egress::{EgressError, EgressOptions};

/// How a proxy is started.
#[derive(Debug, Clone)]
pub struct ProxyOptions {
    /// Where HTTP is served; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The engine's address.
    pub engine_url: String,
    /// Keys of the role `executor`, one per organisation whose upstream tools this proxy runs after
    /// an approval. The first one also says that proxies run.
    pub executor_keys: Vec<SecretString>,
    /// What upstream tools may reach, and where their secrets are.
    pub egress: EgressOptions,
    /// The engine is a development server that asks for no keys.
    pub dev: bool,
    /// Requests a second of one key; 0: as many as it likes.
    pub rate_per_second: u32,
    /// Requests that one key may save up.
    pub rate_burst: u32,
    /// Origins that browsers may call from; none by default.
    pub cors_origins: Vec<HeaderValue>,
    /// Whose `x-forwarded-for` is believed: the networks of load balancers before this proxy.
    pub trusted_forwarders: Networks,
    /// How long requests in flight may take to end after the shutdown began.
    pub grace_ms: u64,
}

impl ProxyOptions {
    /// Options with the documented address.
    #[must_use]
    pub fn new(engine_url: impl Into<String>) -> Self {
        Self {
            listen: SocketAddr::from(([0, 0, 0, 0], 8_080)),
            engine_url: engine_url.into(),
            executor_keys: Vec::new(),
            egress: EgressOptions::default(),
            dev: false,
            rate_per_second: 0,
            rate_burst: 0,
            cors_origins: Vec::new(),
            trusted_forwarders: Networks::default(),
            grace_ms: 25_000,
        }
    }
}

/// Why a proxy does not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// The engine's address cannot be used.
    #[error("the engine's address {url} cannot be used: {error}")]
    Engine {
        /// The address.
        url: String,
        /// What is wrong with it.
        error: tonic::transport::Error,
    },
    /// The client of upstream tools cannot be built.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// A key that cannot be sent.
    #[error("an executor's key is one line of printable characters")]
    Key,
    /// An address could not be taken.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        error: std::io::Error,
    },
    /// Serving ended with an error.
    #[error("serving ended: {0}")]
    Serve(String),
    /// Requests in flight did not end within the grace period.
    #[error("requests in flight did not end within {0} ms")]
    Grace(u64),
}
