//! What humans decide: one file per verb of `UndoLogOperator`.

mod close_breaker;
mod filter;
mod get_approval;
mod get_dead_letter;
mod get_queue_status;
mod list_approvals;
mod list_dead_letters;
mod list_notifications;
mod list_unknown;
mod pause_queue;
mod queue;
mod replay_notifications;
mod resolve_dead_letters;
mod resolve_effect;
mod resume_queue;
mod retry_dead_letters;
mod revoke_approval;
mod set_brake;
mod settle_session;
pub(super) mod shown;
mod skip_dead_letters;
mod watch_approval;

use std::sync::Arc;

use tonic::{Request, Response, Status};
use undolog_core::limits::GRPC_MESSAGE_BYTES_MAX;
use undolog_proto::v1::{
    self,
    undo_log_operator_server::{UndoLogOperator, UndoLogOperatorServer},
};

use super::{fit, verbs};
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
        list_unknown(ListUnknownRequest) -> ListUnknownResponse,
        resolve_effect(ResolveEffectRequest) -> ResolveEffectResponse,
        list_dead_letters(ListDeadLettersRequest) -> ListDeadLettersResponse,
        get_dead_letter(GetDeadLetterRequest) -> GetDeadLetterResponse,
        retry_dead_letters(RetryDeadLettersRequest) -> DeadLettersChanged,
        skip_dead_letters(SkipDeadLettersRequest) -> DeadLettersChanged,
        resolve_dead_letters(ResolveDeadLettersRequest) -> DeadLettersChanged,
        settle_session(SettleSessionRequest) -> SettleSessionResponse,
        pause_queue(PauseQueueRequest) -> QueueStatus,
        resume_queue(ResumeQueueRequest) -> QueueStatus,
        close_breaker(CloseBreakerRequest) -> QueueStatus,
        get_queue_status(GetQueueStatusRequest) -> QueueStatus,
        set_brake(SetBrakeRequest) -> QueueStatus,
        list_notifications(ListNotificationsRequest) -> ListNotificationsResponse,
        replay_notifications(ReplayNotificationsRequest) -> ReplayNotificationsResponse,
    }

    type WatchApprovalStream = fit::Each<watch_approval::Updates>;

    async fn watch_approval(
        &self,
        request: Request<v1::WatchApprovalRequest>,
    ) -> Result<Response<Self::WatchApprovalStream>, Status> {
        let call = self.0.accept(request).await?;
        watch_approval::run(&self.0, call).await.map(fit::each).map(Response::new)
    }
}
