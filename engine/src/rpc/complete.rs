//! Complete: the session ended well.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::sessions::Complete;

use crate::{
    call::{Call, Engine},
    convert::uuid,
};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::CompleteRequest>,
) -> Result<v1::CompleteResponse, Status> {
    let org_id = call.caller.org_id;
    let session_id = uuid("session_id", &call.message.session_id)?;
    let accept_unknown = call.message.accept_unknown;
    let state = engine.run(Complete { caller: call.caller, session_id, accept_unknown }).await?;
    engine.bells.ring(&[org_id, session_id]);
    Ok(v1::CompleteResponse { state: state.to_string() })
}
