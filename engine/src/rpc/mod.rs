//! One file per verb: the message becomes a step or a read, its answer a message.

mod approve;
mod begin;
mod commit;
mod complete;
mod fail;
mod fail_session;
mod fit;
mod get;
mod get_compensation;
mod get_replay;
mod get_tool;
mod get_value;
mod heartbeat;
mod intercept;
mod list;
mod list_compensations;
mod list_effects;
mod list_tools;
mod operator;
mod proxy;
mod register_compensation;
mod register_tool;
mod reject;
mod rollback;
mod savepoint;
mod set_compensation_active;
mod set_tool_active;
mod shown;
mod watch_events;

use std::sync::Arc;

use tonic::{Request, Response, Status};
use undolog_core::limits::GRPC_MESSAGE_BYTES_MAX;
use undolog_proto::v1::{
    self,
    undo_log_engine_server::{UndoLogEngine, UndoLogEngineServer},
    undo_log_registry_server::{UndoLogRegistry, UndoLogRegistryServer},
    undo_log_sessions_server::{UndoLogSessions, UndoLogSessionsServer},
};

pub(crate) use operator::operator_service;
pub(crate) use proxy::proxy_service;

use crate::call::Engine;

/// The five documented calls.
pub(crate) fn engine_service(engine: Arc<Engine>) -> UndoLogEngineServer<Calls> {
    UndoLogEngineServer::new(Calls(engine)).max_decoding_message_size(GRPC_MESSAGE_BYTES_MAX)
}

/// Sessions and their history.
pub(crate) fn sessions_service(engine: Arc<Engine>) -> UndoLogSessionsServer<Sessions> {
    UndoLogSessionsServer::new(Sessions(engine)).max_decoding_message_size(GRPC_MESSAGE_BYTES_MAX)
}

/// Tools and compensations.
pub(crate) fn registry_service(engine: Arc<Engine>) -> UndoLogRegistryServer<Registry> {
    UndoLogRegistryServer::new(Registry(engine)).max_decoding_message_size(GRPC_MESSAGE_BYTES_MAX)
}

/// `UndoLogEngine`.
#[derive(Debug)]
pub(crate) struct Calls(Arc<Engine>);

/// `UndoLogSessions`.
#[derive(Debug)]
pub(crate) struct Sessions(Arc<Engine>);

/// `UndoLogRegistry`.
#[derive(Debug)]
pub(crate) struct Registry(Arc<Engine>);

/// Each method of a service is the `run` of its verb's file.
macro_rules! verbs {
    ($service:ident for $name:ident { $($method:ident($request:ident) -> $reply:ident,)+ }
     $($rest:item)*) => {
        #[tonic::async_trait]
        impl $service for $name {
            $(
                async fn $method(
                    &self,
                    request: Request<v1::$request>,
                ) -> Result<Response<v1::$reply>, Status> {
                    use $crate::rpc::fit;
                    let call = self.0.accept(request).await?;
                    let reply = $method::run(&self.0, call).await.and_then(fit::whole)?;
                    Ok(Response::new(reply))
                }
            )+
            $($rest)*
        }
    };
}
use verbs;

verbs! {
    UndoLogEngine for Calls {
        intercept(InterceptRequest) -> InterceptResponse,
        commit(CommitRequest) -> CommitResponse,
        fail(FailRequest) -> FailResponse,
        approve(ApproveRequest) -> ApproveResponse,
        reject(RejectRequest) -> RejectResponse,
    }
}

verbs! {
    UndoLogRegistry for Registry {
        register_tool(RegisterToolRequest) -> RegisterToolResponse,
        get_tool(GetToolRequest) -> GetToolResponse,
        list_tools(ListToolsRequest) -> ListToolsResponse,
        register_compensation(RegisterCompensationRequest) -> RegisterCompensationResponse,
        get_compensation(GetCompensationRequest) -> GetCompensationResponse,
        list_compensations(ListCompensationsRequest) -> ListCompensationsResponse,
        set_tool_active(SetToolActiveRequest) -> SetToolActiveResponse,
        set_compensation_active(SetCompensationActiveRequest) -> SetCompensationActiveResponse,
    }
}

verbs! {
    UndoLogSessions for Sessions {
        begin(BeginRequest) -> BeginResponse,
        heartbeat(HeartbeatRequest) -> HeartbeatResponse,
        complete(CompleteRequest) -> CompleteResponse,
        fail_session(FailSessionRequest) -> FailSessionResponse,
        savepoint(SavepointRequest) -> SavepointResponse,
        rollback(RollbackRequest) -> RollbackResponse,
        get(GetSessionRequest) -> GetSessionResponse,
        list(ListSessionsRequest) -> ListSessionsResponse,
        list_effects(ListEffectsRequest) -> ListEffectsResponse,
        get_value(GetValueRequest) -> GetValueResponse,
    }

    type GetReplayStream = fit::Each<get_replay::Parts>;

    async fn get_replay(
        &self,
        request: Request<v1::GetReplayRequest>,
    ) -> Result<Response<Self::GetReplayStream>, Status> {
        let call = self.0.accept(request).await?;
        get_replay::run(&self.0, call).await.map(fit::each).map(Response::new)
    }

    type WatchEventsStream = fit::Each<watch_events::Events>;

    async fn watch_events(
        &self,
        request: Request<v1::WatchEventsRequest>,
    ) -> Result<Response<Self::WatchEventsStream>, Status> {
        let call = self.0.accept(request).await?;
        watch_events::run(&self.0, call).await.map(fit::each).map(Response::new)
    }
}
