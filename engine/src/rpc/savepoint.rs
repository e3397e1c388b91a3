//! Savepoint: a place to come back to.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::sessions::Savepoint;

use crate::{
    call::{Call, Engine},
    convert::{count, uuid},
};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::SavepointRequest>,
) -> Result<v1::SavepointResponse, Status> {
    let org_id = call.caller.org_id;
    let request = call.message;
    let session_id = uuid("session_id", &request.session_id)?;
    let step = Savepoint { caller: call.caller, session_id, name: request.name };
    let taken = engine.run(step).await?;
    engine.bells.ring(&[org_id, session_id]);
    Ok(v1::SavepointResponse {
        position: count(taken.position),
        next_step_index: count(taken.next_step_index),
    })
}
