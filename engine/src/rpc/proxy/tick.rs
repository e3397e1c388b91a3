//! Tick: proxies run.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::service;

use crate::call::{Call, Engine};

/// The name that proxies tick under.
const SERVICE: &str = "proxy";

pub(super) async fn run(
    engine: &Arc<Engine>,
    _call: Call<v1::TickRequest>,
) -> Result<v1::TickResponse, Status> {
    let store = engine.store.clone();
    engine.detached(async move { service::tick(&store, SERVICE).await }).await?;
    Ok(v1::TickResponse {})
}
