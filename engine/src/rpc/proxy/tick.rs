//! Tick: an organisation's proxies run.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::service;

use crate::{
    call::{Call, Engine},
    convert,
};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::TickRequest>,
) -> Result<v1::TickResponse, Status> {
    let store = engine.store.clone();
    let org_id = call.caller.org_id;
    // One that does not say which proxy it is keeps its organisation's sessions, and begins none.
    let proxy = convert::optional_uuid("proxy_id", &call.message.proxy_id)?;
    engine.detached(async move { service::tick_proxy(&store, org_id, proxy).await }).await?;
    Ok(v1::TickResponse {})
}
