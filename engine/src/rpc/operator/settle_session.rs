//! SettleSession: a halted session leaves the lists.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::operate::SettleSession;

use crate::{
    call::{Call, Engine},
    convert::uuid,
};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::SettleSessionRequest>,
) -> Result<v1::SettleSessionResponse, Status> {
    let org_id = call.caller.org_id;
    let request = call.message;
    let session_id = uuid("session_id", &request.session_id)?;
    let step = SettleSession { caller: call.caller, session_id, note: request.note };
    let state = engine.run(step).await?;
    engine.bells.ring(&[org_id, session_id]);
    Ok(v1::SettleSessionResponse { state: state.to_string() })
}
