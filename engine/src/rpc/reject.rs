//! Reject: a human stops an irreversible call.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::approvals::Reject;

use crate::{
    call::{Call, Engine},
    convert::uuid,
};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::RejectRequest>,
) -> Result<v1::RejectResponse, Status> {
    let org_id = call.caller.org_id;
    let request = call.message;
    let step = Reject {
        caller: call.caller,
        approval_id: uuid("approval_id", &request.approval_id)?,
        actor: request.actor,
        note: request.note,
        actor_ip: call.client_ip,
    };
    let effect_id = engine.run(step).await?;
    engine.hub.wake(effect_id);
    engine.bells.ring(&[org_id]);
    Ok(v1::RejectResponse {})
}
