//! PauseQueue: no compensation, or none of one function, is called from now on.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::operate::Pause;

use super::queue;
use crate::call::{Call, Engine};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::PauseQueueRequest>,
) -> Result<v1::QueueStatus, Status> {
    let request = call.message;
    let step = Pause {
        caller: call.caller.clone(),
        compensation_fn: request.compensation_fn,
        reason: request.reason,
    };
    engine.run(step).await?;
    queue::status(engine, call.caller, String::new()).await
}
