//! Commit: the outcome of an execution.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::{intercept::StoredResult, report::Commit};

use crate::{
    call::{Call, Engine},
    convert::{invalid, uuid},
};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::CommitRequest>,
) -> Result<v1::CommitResponse, Status> {
    let request = call.message;
    // A SAFE tool has no effect to report on.
    if request.effect_id.is_empty() {
        return Ok(v1::CommitResponse {});
    }
    let result = request.result.ok_or_else(|| invalid("result is missing"))?;
    let (org_id, session_id) = (call.caller.org_id, uuid("session_id", &request.session_id)?);
    let effect_id = uuid("effect_id", &request.effect_id)?;
    let step = Commit {
        caller: call.caller,
        session_id,
        effect_id,
        attempt: request.attempt,
        executor_token: request.executor_token,
        result: StoredResult {
            success: result.success,
            output: result.output,
            error: result.error,
            duration_ms: result.duration_ms,
        },
    };
    let answer = engine.run(step).await;
    engine.hub.wake(effect_id);
    engine.bells.ring(&[org_id, session_id]);
    answer.map(|()| v1::CommitResponse {})
}
