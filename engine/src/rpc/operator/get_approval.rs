//! GetApproval: a request with every decision about it.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::read;

use super::shown;
use crate::{
    call::{Call, Engine},
    convert::uuid,
};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::GetApprovalRequest>,
) -> Result<v1::GetApprovalResponse, Status> {
    let approval_id = uuid("approval_id", &call.message.approval_id)?;
    let store = engine.store.clone();
    let reading = async move { read::get_approval(&store, &call.caller, approval_id).await };
    let (approval, events) = engine.read(reading).await?;
    Ok(v1::GetApprovalResponse {
        approval: Some(shown::approval(approval)),
        events: events.into_iter().map(shown::approval_event).collect(),
    })
}
