//! SetToolActive: versions of a tool are taken out of use, or back into it.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::registry::SetActive;

use crate::call::{Call, Engine};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::SetToolActiveRequest>,
) -> Result<v1::SetToolActiveResponse, Status> {
    let request = call.message;
    let step =
        SetActive::tool(call.caller, request.tool_name, request.tool_version, request.is_active);
    Ok(v1::SetToolActiveResponse { changed_versions: engine.run(step).await? })
}
