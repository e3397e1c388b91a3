//! CloseBreaker: what waits for a breaker goes on.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::operate::CloseBreaker;

use super::queue;
use crate::call::{Call, Engine};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::CloseBreakerRequest>,
) -> Result<v1::QueueStatus, Status> {
    let v1::CloseBreakerRequest { compensation_fn, host, .. } = call.message;
    // Closing what is closed changes nothing: that is what was asked for.
    engine.run(CloseBreaker { caller: call.caller.clone(), compensation_fn, host }).await?;
    queue::status(engine, call.caller, String::new()).await
}
