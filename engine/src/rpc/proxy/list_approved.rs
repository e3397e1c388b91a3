//! ListApproved: approved calls that wait for a proxy.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::upstream::{self, ApprovedCall};

use crate::{
    call::{Call, Engine},
    convert::count,
};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::ListApprovedRequest>,
) -> Result<v1::ListApprovedResponse, Status> {
    let store = engine.store.clone();
    let org_id = call.caller.org_id;
    let token = call.message.page_token;
    let page = engine.read(async move { upstream::approved(&store, org_id, &token).await }).await?;
    Ok(v1::ListApprovedResponse {
        calls: page.rows.into_iter().map(shown).collect(),
        next_page_token: page.next_token,
    })
}

fn shown(call: ApprovedCall) -> v1::ApprovedCall {
    v1::ApprovedCall {
        approval_id: call.approval_id.to_string(),
        session_id: call.session_id.to_string(),
        effect_id: call.effect_id.to_string(),
        tool_name: call.tool_name,
        tool_version: call.tool_version,
        // A session numbers its steps in one of two ways.
        step_index: if call.step_key.is_none() { count(call.step_index) } else { 0 },
        step_key: call.step_key.unwrap_or_default(),
        args: call.args,
    }
}
