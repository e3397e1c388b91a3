//! RegisterCompensation: a version of a compensation is added, or changed.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::registry::{CompensationInput, RegisterCompensation};

use super::shown;
use crate::{
    call::{Call, Engine},
    convert::invalid,
};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::RegisterCompensationRequest>,
) -> Result<v1::RegisterCompensationResponse, Status> {
    let given = call.message.compensation.ok_or_else(|| invalid("compensation is missing"))?;
    let compensation = CompensationInput {
        fn_name: given.fn_name,
        fn_version: given.fn_version,
        description: given.description,
        fn_body: given.fn_body,
        args_schema: given.args_schema,
        max_retries: given.max_retries,
        retry_backoff_ms: given.retry_backoff_ms,
        open: given.open,
        concurrency_max: given.concurrency_max,
        rate_per_minute: given.rate_per_minute,
        result_from: given.result_from,
    };
    let registered = engine.run(RegisterCompensation { caller: call.caller, compensation }).await?;
    Ok(v1::RegisterCompensationResponse {
        compensation: Some(shown::compensation(registered.row)?),
        created: registered.created,
    })
}
