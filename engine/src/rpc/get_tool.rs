//! GetTool: one version of a tool.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::registry;

use super::shown;
use crate::call::{Call, Engine};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::GetToolRequest>,
) -> Result<v1::GetToolResponse, Status> {
    let (store, request) = (engine.store.clone(), call.message);
    let reading = async move {
        registry::get(&store, &call.caller, &request.tool_name, &request.tool_version).await
    };
    let row = engine.read(reading).await?;
    Ok(v1::GetToolResponse { tool: Some(shown::tool(row)?) })
}
