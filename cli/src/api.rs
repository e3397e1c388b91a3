//! gRPC with a key: how every verb but the owner's reaches an engine.

use std::time::Duration;

use clap::Args;
use secrecy::{ExposeSecret as _, SecretString};
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Channel, Endpoint},
};
use undolog_proto::v1::{
    undo_log_engine_client::UndoLogEngineClient, undo_log_operator_client::UndoLogOperatorClient,
    undo_log_registry_client::UndoLogRegistryClient,
    undo_log_sessions_client::UndoLogSessionsClient,
};

use crate::error::CliError;

/// Messages up to the engine's own limit.
const MESSAGE_BYTES_MAX: usize = undolog_core::limits::GRPC_MESSAGE_BYTES_MAX;

/// A channel that says who calls.
pub type Authed = InterceptedService<Channel, Credentials>;

/// Where the engine is, and who calls.
#[derive(Debug, Clone, Args)]
pub struct ApiArgs {
    /// Address of the engine.
    #[arg(long, global = true, env = "UNDOLOG_ENGINE_URL", value_name = "URL")]
    #[arg(default_value = "http://127.0.0.1:50051")]
    pub engine_url: String,
    /// API key; a development server needs none.
    #[arg(
        long,
        global = true,
        env = "UNDOLOG_API_KEY",
        hide_env_values = true,
        value_name = "KEY"
    )]
    pub api_key: Option<SecretString>,
    /// Organisation, by slug or uuid; the key's own if it is left out.
    #[arg(long, global = true, env = "UNDOLOG_ORG", value_name = "ORG")]
    pub org: Option<String>,
    /// How long to wait for the engine.
    #[arg(
        long,
        global = true,
        env = "UNDOLOG_TIMEOUT_SECONDS",
        value_name = "SECONDS",
        default_value_t = 30
    )]
    pub timeout_seconds: u64,
}

/// A way to an engine.
#[derive(Debug, Clone)]
pub struct Api {
    channel: Channel,
    credentials: Credentials,
    timeout: Duration,
    org: String,
}

impl Api {
    /// Gets ready to call; the connection is made by the first call, and again when it was lost.
    pub fn connect(args: &ApiArgs) -> Result<Self, CliError> {
        let unusable = |error: &dyn std::fmt::Display| {
            CliError::Usage(format!("--engine-url {}: {error}", args.engine_url))
        };
        let endpoint =
            Endpoint::from_shared(args.engine_url.clone()).map_err(|error| unusable(&error))?;
        if endpoint.uri().scheme().is_none() {
            return Err(unusable(&"http:// or https:// is missing"));
        }
        let endpoint = endpoint
            .connect_timeout(Duration::from_secs(5))
            .http2_keep_alive_interval(Duration::from_secs(20))
            .tcp_nodelay(true);
        let credentials = Credentials::new(args.api_key.as_ref())?;
        Ok(Self {
            channel: endpoint.connect_lazy(),
            credentials,
            timeout: Duration::from_secs(args.timeout_seconds),
            org: args.org.clone().unwrap_or_default(),
        })
    }

    /// The organisation to name in requests; empty means the key's own.
    #[must_use]
    pub fn org(&self) -> String {
        self.org.clone()
    }

    /// The five calls around a tool call.
    #[must_use]
    pub fn engine(&self) -> UndoLogEngineClient<Authed> {
        UndoLogEngineClient::with_interceptor(self.channel.clone(), self.credentials.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// Sessions and their history.
    #[must_use]
    pub fn sessions(&self) -> UndoLogSessionsClient<Authed> {
        UndoLogSessionsClient::with_interceptor(self.channel.clone(), self.credentials.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// Tools and compensations.
    #[must_use]
    pub fn registry(&self) -> UndoLogRegistryClient<Authed> {
        UndoLogRegistryClient::with_interceptor(self.channel.clone(), self.credentials.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// What humans decide.
    #[must_use]
    pub fn operator(&self) -> UndoLogOperatorClient<Authed> {
        UndoLogOperatorClient::with_interceptor(self.channel.clone(), self.credentials.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// A request with this command's deadline.
    pub fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(self.timeout);
        request
    }
}

/// Adds the key to every call.
#[derive(Debug, Clone)]
pub struct Credentials {
    key: Option<MetadataValue<Ascii>>,
}

impl Credentials {
    fn new(key: Option<&SecretString>) -> Result<Self, CliError> {
        let Some(key) = key.map(|key| key.expose_secret().trim()).filter(|key| !key.is_empty())
        else {
            return Ok(Self { key: None });
        };
        let mut value: MetadataValue<Ascii> = key.parse().map_err(|_| {
            CliError::Usage("--api-key: a key is one line of printable characters".to_owned())
        })?;
        value.set_sensitive(true);
        Ok(Self { key: Some(value) })
    }
}

impl Interceptor for Credentials {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(key) = &self.key {
            request.metadata_mut().insert("x-api-key", key.clone());
        }
        Ok(request)
    }
}
