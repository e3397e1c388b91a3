//! Begin: a session with a lease of its own.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::sessions::Begin;

use crate::{
    call::{Call, Engine},
    convert::{optional_uuid, timestamp},
};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::BeginRequest>,
) -> Result<v1::BeginResponse, Status> {
    let org_id = call.caller.org_id;
    let request = call.message;
    let step = Begin {
        caller: call.caller,
        session_id: optional_uuid("session_id", &request.session_id)?,
        agent_name: request.agent_name,
        external_run_id: request.external_run_id,
        project: request.project,
        metadata: request.metadata,
        lease_seconds: request.lease_seconds,
        on_tool_failure: request.on_tool_failure,
        on_rejection: request.on_rejection,
        on_unknown: request.on_unknown,
    };
    let begun = engine.run(step).await?;
    engine.bells.ring(&[org_id, begun.session_id]);
    Ok(v1::BeginResponse {
        session_id: begun.session_id.to_string(),
        state: begun.state.to_string(),
        started_at: Some(timestamp(begun.started_at)),
        lease_expires_at: begun.lease_expires_at.map(timestamp),
        existed: begun.existed,
    })
}
