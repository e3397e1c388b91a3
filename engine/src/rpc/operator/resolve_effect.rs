//! ResolveEffect: an operator says whether an unknown call happened, or that an undo did not.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::operate::{Resolution, ResolveEffect};

use crate::{
    call::{Call, Engine},
    convert::{invalid, uuid},
};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::ResolveEffectRequest>,
) -> Result<v1::ResolveEffectResponse, Status> {
    let org_id = call.caller.org_id;
    let request = call.message;
    let session_id = uuid("session_id", &request.session_id)?;
    let effect_id = uuid("effect_id", &request.effect_id)?;
    let step = ResolveEffect {
        caller: call.caller,
        session_id,
        effect_id,
        resolve: resolution(&request.r#as, request.result)?,
        note: request.note,
    };
    let resolved = engine.run(step).await?;
    engine.hub.wake(effect_id);
    engine.bells.ring(&[org_id, session_id]);
    Ok(v1::ResolveEffectResponse {
        effect_state: resolved.effect_state.to_string(),
        session_state: resolved.session_state.to_string(),
    })
}

fn resolution(named: &str, output: Vec<u8>) -> Result<Resolution, Status> {
    let resolution = match named {
        "committed" => return Ok(Resolution::Committed { output }),
        "not_applied" => Resolution::NotApplied,
        "undone" => Resolution::Undone,
        "not_undone" => Resolution::NotUndone,
        _ => return Err(invalid("as must be committed, not_applied, undone or not_undone")),
    };
    if output.is_empty() {
        Ok(resolution)
    } else {
        Err(invalid("only what is committed has a result"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_committed_effect_has_a_result() {
        let output = b"{}".to_vec();
        assert_eq!(
            resolution("committed", output.clone()).expect("fits"),
            Resolution::Committed { output: output.clone() }
        );
        assert_eq!(resolution("not_applied", Vec::new()).expect("fits"), Resolution::NotApplied);
        for named in ["not_applied", "undone", "not_undone", "", "Committed"] {
            resolution(named, output.clone()).expect_err(named);
        }
    }
}
