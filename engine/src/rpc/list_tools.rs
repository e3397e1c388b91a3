//! ListTools: the tools by name and version.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::{read::Paging, registry};

use super::shown;
use crate::call::{Call, Engine};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::ListToolsRequest>,
) -> Result<v1::ListToolsResponse, Status> {
    let paging = Paging { size: call.message.page_size, token: call.message.page_token };
    let store = engine.store.clone();
    let reading = async move { registry::list(&store, &call.caller, &paging).await };
    let page = engine.read(reading).await?;
    Ok(v1::ListToolsResponse {
        tools: page.rows.into_iter().map(shown::tool).collect::<Result<_, _>>()?,
        next_page_token: page.next_token,
    })
}
