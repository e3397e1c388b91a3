//! What humans decide: one file per verb of `UndoLogOperator`.

mod get_approval;
mod list_approvals;
mod revoke_approval;
mod shown;
mod watch_approval;

use std::sync::Arc;

use tonic::{Request, Response, Status};
use undolog_core::limits::GRPC_MESSAGE_BYTES_MAX;
use undolog_proto::v1::{
    self,
    undo_log_operator_server::{UndoLogOperator, UndoLogOperatorServer},
};

use super::verbs;
use crate::call::Engine;

/// Approvals, unknown outcomes, dead letters, halted sessions and the queue.
pub(crate) fn operator_service(engine: Arc<Engine>) -> UndoLogOperatorServer<Operator> {
    UndoLogOperatorServer::new(Operator(engine)).max_decoding_message_size(GRPC_MESSAGE_BYTES_MAX)
}

/// `UndoLogOperator`.
#[derive(Debug)]
pub(crate) struct Operator(Arc<Engine>);

verbs! {
    UndoLogOperator for Operator {
        list_approvals(ListApprovalsRequest) -> ListApprovalsResponse,
        get_approval(GetApprovalRequest) -> GetApprovalResponse,
        revoke_approval(RevokeApprovalRequest) -> RevokeApprovalResponse,
    }

    type WatchApprovalStream = watch_approval::Updates;

    async fn watch_approval(
        &self,
        request: Request<v1::WatchApprovalRequest>,
    ) -> Result<Response<Self::WatchApprovalStream>, Status> {
        let call = self.0.accept(request).await?;
        watch_approval::run(&self.0, call).await.map(Response::new)
    }
    async fn list_unknown(
        &self,
        _request: Request<v1::ListUnknownRequest>,
    ) -> Result<Response<v1::ListUnknownResponse>, Status> {
        Err(Status::unimplemented("not yet"))
    }

    async fn resolve_effect(
        &self,
        _request: Request<v1::ResolveEffectRequest>,
    ) -> Result<Response<v1::ResolveEffectResponse>, Status> {
        Err(Status::unimplemented("not yet"))
    }

    async fn list_dead_letters(
        &self,
        _request: Request<v1::ListDeadLettersRequest>,
    ) -> Result<Response<v1::ListDeadLettersResponse>, Status> {
        Err(Status::unimplemented("not yet"))
    }

    async fn get_dead_letter(
        &self,
        _request: Request<v1::GetDeadLetterRequest>,
    ) -> Result<Response<v1::GetDeadLetterResponse>, Status> {
        Err(Status::unimplemented("not yet"))
    }

    async fn retry_dead_letters(
        &self,
        _request: Request<v1::RetryDeadLettersRequest>,
    ) -> Result<Response<v1::DeadLettersChanged>, Status> {
        Err(Status::unimplemented("not yet"))
    }

    async fn skip_dead_letters(
        &self,
        _request: Request<v1::SkipDeadLettersRequest>,
    ) -> Result<Response<v1::DeadLettersChanged>, Status> {
        Err(Status::unimplemented("not yet"))
    }

    async fn resolve_dead_letters(
        &self,
        _request: Request<v1::ResolveDeadLettersRequest>,
    ) -> Result<Response<v1::DeadLettersChanged>, Status> {
        Err(Status::unimplemented("not yet"))
    }

    async fn settle_session(
        &self,
        _request: Request<v1::SettleSessionRequest>,
    ) -> Result<Response<v1::SettleSessionResponse>, Status> {
        Err(Status::unimplemented("not yet"))
    }

    async fn pause_queue(
        &self,
        _request: Request<v1::PauseQueueRequest>,
    ) -> Result<Response<v1::QueueStatus>, Status> {
        Err(Status::unimplemented("not yet"))
    }

    async fn resume_queue(
        &self,
        _request: Request<v1::ResumeQueueRequest>,
    ) -> Result<Response<v1::QueueStatus>, Status> {
        Err(Status::unimplemented("not yet"))
    }

    async fn get_queue_status(
        &self,
        _request: Request<v1::GetQueueStatusRequest>,
    ) -> Result<Response<v1::QueueStatus>, Status> {
        Err(Status::unimplemented("not yet"))
    }

    async fn set_brake(
        &self,
        _request: Request<v1::SetBrakeRequest>,
    ) -> Result<Response<v1::QueueStatus>, Status> {
        Err(Status::unimplemented("not yet"))
    }
}
