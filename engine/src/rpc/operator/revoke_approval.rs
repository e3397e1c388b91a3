//! RevokeApproval: an approval that was not used yet is taken back.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::approvals::Revoke;

use crate::{
    call::{Call, Engine},
    convert::uuid,
};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::RevokeApprovalRequest>,
) -> Result<v1::RevokeApprovalResponse, Status> {
    let org_id = call.caller.org_id;
    let request = call.message;
    let step = Revoke {
        caller: call.caller,
        approval_id: uuid("approval_id", &request.approval_id)?,
        note: request.note,
    };
    let effect_id = engine.run(step).await?;
    engine.hub.wake(effect_id);
    engine.bells.ring(&[org_id]);
    Ok(v1::RevokeApprovalResponse { effect_id: effect_id.to_string() })
}
