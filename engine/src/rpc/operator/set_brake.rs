//! SetBrake: an operator stops, forces or releases the brake of a mass expiry.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::operate::{BrakeOrder, SetBrake};

use super::queue;
use crate::{
    call::{Call, Engine},
    convert::invalid,
};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::SetBrakeRequest>,
) -> Result<v1::QueueStatus, Status> {
    let order = BrakeOrder::named(&call.message.state)
        .ok_or_else(|| invalid("state is stopped, forced or released"))?;
    engine.run(SetBrake { caller: call.caller.clone(), order }).await?;
    queue::status(engine, call.caller, String::new()).await
}
