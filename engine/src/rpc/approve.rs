//! Approve: a human lets an irreversible call run once.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::approvals::Approve;

use crate::{
    call::{Call, Engine},
    convert::uuid,
};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::ApproveRequest>,
) -> Result<v1::ApproveResponse, Status> {
    let org_id = call.caller.org_id;
    let request = call.message;
    let step = Approve {
        caller: call.caller,
        approval_id: uuid("approval_id", &request.approval_id)?,
        actor: request.actor,
        approved_args: (!request.approved_args.is_empty()).then_some(request.approved_args),
        note: request.note,
        actor_ip: call.client_ip,
    };
    let approved = engine.run(step).await?;
    engine.hub.wake(approved.effect_id);
    engine.bells.ring(&[org_id, approved.session_id]);
    Ok(v1::ApproveResponse {
        effect_id: approved.effect_id.to_string(),
        session_id: approved.session_id.to_string(),
        tool_name: approved.tool_name,
        tool_version: approved.tool_version,
        args: approved.args,
    })
}
