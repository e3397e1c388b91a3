//! ListEffects: a session's effects, by step.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::read::{self, Paging};

use super::{fit::listed, shown};
use crate::{
    call::{Call, Engine},
    convert::uuid,
};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::ListEffectsRequest>,
) -> Result<v1::ListEffectsResponse, Status> {
    let request = call.message;
    let session_id = uuid("session_id", &request.session_id)?;
    let paging = Paging { size: request.page_size, token: request.page_token };
    let store = engine.store.clone();
    let reading =
        async move { read::list_effects(&store, &call.caller, session_id, &paging).await };
    let page = engine.read(reading).await?;
    Ok(v1::ListEffectsResponse {
        effects: page.rows.into_iter().map(shown::effect).map(listed).collect(),
        next_page_token: page.next_token,
    })
}
