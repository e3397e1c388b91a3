//! GetCompensation: one version of a compensation.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::registry;

use super::shown;
use crate::call::{Call, Engine};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::GetCompensationRequest>,
) -> Result<v1::GetCompensationResponse, Status> {
    let (store, request) = (engine.store.clone(), call.message);
    let reading = async move {
        let (name, version) = (&request.fn_name, &request.fn_version);
        registry::get(&store, &call.caller, name, version).await
    };
    let row = engine.read(reading).await?;
    Ok(v1::GetCompensationResponse { compensation: Some(shown::compensation(row)?) })
}
