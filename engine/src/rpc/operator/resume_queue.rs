//! ResumeQueue: what was paused goes on.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::operate::Resume;

use super::queue;
use crate::call::{Call, Engine};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::ResumeQueueRequest>,
) -> Result<v1::QueueStatus, Status> {
    let compensation_fn = call.message.compensation_fn;
    // Resuming what is not paused changes nothing: that is what was asked for.
    engine.run(Resume { caller: call.caller.clone(), compensation_fn }).await?;
    queue::status(engine, call.caller, String::new()).await
}
