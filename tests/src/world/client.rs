//! gRPC with an API key.

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use undolog_proto::v1::undo_log_engine_client::UndoLogEngineClient;
use undolog_proto::v1::undo_log_operator_client::UndoLogOperatorClient;
use undolog_proto::v1::undo_log_proxy_client::UndoLogProxyClient;
use undolog_proto::v1::undo_log_registry_client::UndoLogRegistryClient;
use undolog_proto::v1::undo_log_sessions_client::UndoLogSessionsClient;

/// A channel that names its caller.
pub type Keyed = InterceptedService<Channel, Key>;

/// As large as the engine's own limit.
const MESSAGE_BYTES_MAX: usize = undolog_core::limits::GRPC_MESSAGE_BYTES_MAX;

/// Adds the key to every call.
#[derive(Clone, Debug)]
pub struct Key(Option<MetadataValue<Ascii>>);

impl Interceptor for Key {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(key) = &self.0 {
            request.metadata_mut().insert("x-api-key", key.clone());
        }
        Ok(request)
    }
}

/// The three services of one engine. Cheap to clone; the connection is shared.
#[derive(Clone, Debug)]
pub struct Client {
    channel: Channel,
    key: Key,
}

impl Client {
    /// Connects on the first call, and again when the engine has been restarted.
    pub fn new(engine_url: &str, key: Option<&str>) -> Self {
        let channel = Endpoint::from_shared(engine_url.to_owned())
            .expect("an engine's URL")
            .tcp_nodelay(true)
            .connect_lazy();
        Self { channel, key: Key(key.map(|key| key.parse().expect("a key of the kit"))) }
    }

    /// The five calls around a tool call.
    pub fn engine(&self) -> UndoLogEngineClient<Keyed> {
        UndoLogEngineClient::with_interceptor(self.channel.clone(), self.key.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// Sessions.
    pub fn sessions(&self) -> UndoLogSessionsClient<Keyed> {
        UndoLogSessionsClient::with_interceptor(self.channel.clone(), self.key.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// What humans decide.
    pub fn operator(&self) -> UndoLogOperatorClient<Keyed> {
        UndoLogOperatorClient::with_interceptor(self.channel.clone(), self.key.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// What proxies need.
    pub fn proxy(&self) -> UndoLogProxyClient<Keyed> {
        UndoLogProxyClient::with_interceptor(self.channel.clone(), self.key.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// Tools and compensations.
    pub fn registry(&self) -> UndoLogRegistryClient<Keyed> {
        UndoLogRegistryClient::with_interceptor(self.channel.clone(), self.key.clone())
    }
}
