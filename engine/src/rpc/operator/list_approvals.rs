//! ListApprovals: what waits for a decision, the newest first.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::read::{self, ApprovalFilter, Paging};

use super::{super::fit::listed, shown};
use crate::{
    call::{Call, Engine},
    convert::optional_uuid,
};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::ListApprovalsRequest>,
) -> Result<v1::ListApprovalsResponse, Status> {
    let request = call.message;
    let filter = ApprovalFilter {
        states: request.states,
        session_id: optional_uuid("session_id", &request.session_id)?,
    };
    let paging = Paging { size: request.page_size, token: request.page_token };
    let store = engine.store.clone();
    let reading = async move { read::list_approvals(&store, &call.caller, &filter, &paging).await };
    let page = engine.read(reading).await?;
    Ok(v1::ListApprovalsResponse {
        approvals: page.rows.into_iter().map(shown::approval).map(listed).collect(),
        next_page_token: page.next_token,
    })
}
