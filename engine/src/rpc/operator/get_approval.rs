//! GetApproval: a request with every decision about it.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::read;

use super::{
    super::fit::{listed, row},
    shown,
};
use crate::{
    call::{Call, Engine},
    convert::uuid,
};

/// One decision, beside a request of the largest size.
const EVENT_BYTES: usize = 768 * 1024;

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::GetApprovalRequest>,
) -> Result<v1::GetApprovalResponse, Status> {
    let approval_id = uuid("approval_id", &call.message.approval_id)?;
    let store = engine.store.clone();
    let events_token = call.message.events_page_token;
    let reading =
        async move { read::get_approval(&store, &call.caller, approval_id, &events_token).await };
    let (approval, events) = engine.read(reading).await?;
    let rows = events.rows.into_iter().map(shown::approval_event);
    Ok(v1::GetApprovalResponse {
        approval: Some(listed(shown::approval(approval))),
        events: rows.map(|event| row(event, EVENT_BYTES)).collect(),
        events_next_page_token: events.next_token,
    })
}
