//! Heartbeat: the session and its grants live on.

use std::sync::Arc;

use tonic::Status;
use undolog_core::{
    limits::PAGE_MAX,
    reason::{Reason, Refusal},
};
use undolog_proto::v1;
use undolog_store::sessions::{GrantStatus, Heartbeat};

use crate::{
    call::{Call, Engine},
    convert::{timestamp, uuid},
    status,
};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::HeartbeatRequest>,
) -> Result<v1::HeartbeatResponse, Status> {
    let org_id = call.caller.org_id;
    let request = call.message;
    let session_id = uuid("session_id", &request.session_id)?;
    if request.grants.len() > PAGE_MAX as usize {
        let refusal =
            Refusal::because(Reason::LimitExceeded, "one heartbeat names too many grants")
                .with("limit", PAGE_MAX);
        return Err(status::of_refusal(&refusal));
    }
    let grants = request
        .grants
        .iter()
        .map(|grant| Ok((uuid("effect_id", &grant.effect_id)?, grant.attempt)));
    let grants = grants.collect::<Result<Vec<_>, Status>>()?;
    let reply = engine.run(Heartbeat { caller: call.caller, session_id, grants }).await?;
    engine.bells.ring(&[org_id, session_id]);
    Ok(v1::HeartbeatResponse {
        state: reply.state.to_string(),
        stop: reply.stop,
        lease_expires_at: reply.lease_expires_at.map(timestamp),
        grants: reply.grants.into_iter().map(grant).collect(),
    })
}

fn grant(grant: GrantStatus) -> v1::GrantStatus {
    v1::GrantStatus {
        effect_id: grant.effect_id.to_string(),
        attempt: grant.attempt,
        state: grant.state.to_string(),
        lease_expires_at: grant.lease_expires_at.map(timestamp),
        stop: grant.stop,
    }
}
