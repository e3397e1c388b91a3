//! SetToolActive: versions of a tool are taken out of use, or back into it.

use std::sync::Arc;

use tonic::Status;
use undolog_core::limits::VERSIONS_NAMED_MAX;
use undolog_proto::v1;
use undolog_store::registry::SetActive;

use crate::{
    call::{Call, Engine},
    convert::count,
};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::SetToolActiveRequest>,
) -> Result<v1::SetToolActiveResponse, Status> {
    let request = call.message;
    let step =
        SetActive::tool(call.caller, request.tool_name, request.tool_version, request.is_active);
    let mut changed_versions = engine.run(step).await?;
    let left_out = changed_versions.len().saturating_sub(VERSIONS_NAMED_MAX);
    changed_versions.truncate(VERSIONS_NAMED_MAX);
    Ok(v1::SetToolActiveResponse { changed_versions, versions_left_out: count(left_out) })
}
