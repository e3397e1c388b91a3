//! ListUnknown: effects of which nobody knows whether they happened, the longest unknown first.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::{
    operate::{UnknownFilter, list_unknown},
    read::Paging,
};

use super::shown;
use crate::{
    call::{Call, Engine},
    convert::optional_uuid,
};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::ListUnknownRequest>,
) -> Result<v1::ListUnknownResponse, Status> {
    let request = call.message;
    let filter = UnknownFilter {
        session_id: optional_uuid("session_id", &request.session_id)?,
        tool_name: request.tool_name,
        effect_id: optional_uuid("effect_id", &request.effect_id)?,
    };
    let paging = Paging { size: request.page_size, token: request.page_token };
    let store = engine.store.clone();
    let reading = async move { list_unknown(&store, &call.caller, &filter, &paging).await };
    let page = engine.read(reading).await?;
    Ok(v1::ListUnknownResponse {
        effects: page.rows.into_iter().map(shown::unknown).collect(),
        next_page_token: page.next_token,
    })
}
