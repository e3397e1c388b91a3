//! Fail: an execution that did not succeed.

use std::sync::Arc;

use tonic::Status;
use undolog_core::state::FailedEffect;
use undolog_proto::v1;
use undolog_store::report::Fail;

use crate::{
    call::{Call, Engine},
    convert::{invalid, uuid},
};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::FailRequest>,
) -> Result<v1::FailResponse, Status> {
    let request = call.message;
    // A SAFE tool has no effect to report on.
    if request.effect_id.is_empty() {
        return Ok(v1::FailResponse {});
    }
    let (org_id, session_id) = (call.caller.org_id, uuid("session_id", &request.session_id)?);
    let effect_id = uuid("effect_id", &request.effect_id)?;
    let step = Fail {
        caller: call.caller,
        session_id,
        effect_id,
        attempt: request.attempt,
        executor_token: request.executor_token,
        effect: known(request.effect)?,
        error: request.error,
        on_tool_failure: request.on_tool_failure,
    };
    let answer = engine.run(step).await;
    engine.hub.wake(effect_id);
    engine.bells.ring(&[org_id, session_id]);
    answer.map(|()| v1::FailResponse {})
}

/// What the caller knows of the effect. A value of a later version of the wire is refused: taking
/// it for another one could hide that something happened.
fn known(value: i32) -> Result<FailedEffect, Status> {
    match v1::FailedEffect::try_from(value) {
        Ok(v1::FailedEffect::Unspecified | v1::FailedEffect::MaybeApplied) => {
            Ok(FailedEffect::MaybeApplied)
        }
        Ok(v1::FailedEffect::NotApplied) => Ok(FailedEffect::NotApplied),
        Ok(v1::FailedEffect::Unknown) => Ok(FailedEffect::Unknown),
        Err(_) => Err(invalid("effect is none that this engine knows")),
    }
}
