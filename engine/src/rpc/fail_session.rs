//! FailSession: the session ended badly; with `rollback` its walk starts.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::sessions::FailSession;

use crate::{
    call::{Call, Engine},
    convert::{id, uuid},
};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::FailSessionRequest>,
) -> Result<v1::FailSessionResponse, Status> {
    let org_id = call.caller.org_id;
    let request = call.message;
    let session_id = uuid("session_id", &request.session_id)?;
    let step = FailSession {
        caller: call.caller,
        session_id,
        reason: request.reason,
        rollback: request.rollback,
    };
    let failed = engine.run(step).await?;
    engine.bells.ring(&[org_id, session_id]);
    Ok(v1::FailSessionResponse {
        state: failed.state.to_string(),
        rollback_id: id(failed.rollback_id),
    })
}
