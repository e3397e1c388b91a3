//! GetQueueStatus: what is due, running, halted, paused and dead.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;

use super::queue;
use crate::call::{Call, Engine};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::GetQueueStatusRequest>,
) -> Result<v1::QueueStatus, Status> {
    queue::status(engine, call.caller, call.message.page_token).await
}
