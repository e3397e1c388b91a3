//! How an engine is started, and why it may refuse to.

use std::net::SocketAddr;

use secrecy::SecretString;
use undolog_core::networks::Networks;
use undolog_store::{StepError, StoreOptions, catalog::CatalogError};

/// How an engine is started.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Where gRPC is served; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where `/health`, `/ready` and `/metrics` are served; `None`: nowhere.
    pub http_listen: Option<SocketAddr>,
    /// The journal, as `undolog_app`.
    pub store: StoreOptions,
    /// Whose word about a client's address is believed: the networks of the proxies.
    pub trusted_proxies: Networks,
    /// Calls without a key are let in, on loopback only.
    pub dev: Option<DevMode>,
    /// How long calls in flight may take to end after the shutdown began.
    pub grace_ms: u64,
}

impl EngineOptions {
    /// Options with the documented addresses.
    #[must_use]
    pub fn new(store: StoreOptions) -> Self {
        Self {
            listen: SocketAddr::from(([0, 0, 0, 0], 50_051)),
            http_listen: Some(SocketAddr::from(([0, 0, 0, 0], 9_090))),
            store,
            trusted_proxies: Networks::default(),
            dev: None,
            grace_ms: 25_000,
        }
    }
}

/// Development: a caller without a key is an administrator of the organisation that it names, and
/// the organisation is made when it does not exist.
#[derive(Debug, Clone)]
pub struct DevMode {
    /// The owner's URL, to make organisations with.
    pub owner_url: SecretString,
    /// The slug of the organisation that is meant when a call names none.
    pub default_org: String,
}

/// Why an engine does not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// Without keys, everybody who reaches the port is an administrator.
    #[error("without keys the engine listens on loopback only, not on {0}")]
    DevNotOnLoopback(SocketAddr),
    /// The journal could not be reached, or the first tick did not get through.
    #[error("the journal cannot be used: {0}")]
    Store(#[from] StepError),
    /// The role or the schema is unfit.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// An address could not be taken.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        error: std::io::Error,
    },
    /// The reflection service could not read our own descriptors.
    #[error("the descriptors of the services cannot be read: {0}")]
    Reflection(String),
    /// Serving ended with an error.
    #[error("serving ended: {0}")]
    Serve(String),
    /// Calls in flight did not end within the grace period; the journal holds each whole or not.
    #[error("calls in flight did not end within {0} ms")]
    Grace(u64),
}
