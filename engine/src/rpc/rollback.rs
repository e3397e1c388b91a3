//! Rollback: the session's walk starts, or its plan is shown.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1::{self, rollback_request::Scope};
use undolog_store::sessions::{PlannedItem, Rollback, RollbackReply, RollbackScope};

use crate::{
    call::{Call, Engine},
    convert::{id, uuid},
};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::RollbackRequest>,
) -> Result<v1::RollbackResponse, Status> {
    let org_id = call.caller.org_id;
    let request = call.message;
    let session_id = uuid("session_id", &request.session_id)?;
    let step = Rollback {
        caller: call.caller,
        session_id,
        reason: request.reason,
        scope: match request.scope {
            None => RollbackScope::Whole,
            Some(Scope::ToSavepoint(position)) => RollbackScope::ToSavepoint(position),
            Some(Scope::ToStep(step_index)) => RollbackScope::ToStep(step_index),
        },
        allow_residue: request.allow_residue,
        dry_run: request.dry_run,
        page_token: request.page_token,
    };
    let reply = engine.run(step).await?;
    engine.bells.ring(&[org_id, session_id]);
    Ok(response(reply))
}

fn response(reply: RollbackReply) -> v1::RollbackResponse {
    v1::RollbackResponse {
        rollback_id: id(reply.rollback_id),
        state: reply.state.to_string(),
        next_step_index: reply.next_step_index,
        plan: reply.plan.into_iter().map(planned).collect(),
        residue: reply.residue.into_iter().map(residue).collect(),
        voided_approvals: reply.voided_approvals.iter().map(ToString::to_string).collect(),
        truncated: reply.truncated,
        next_page_token: reply.next_token,
    }
}

pub(super) fn planned(item: PlannedItem) -> v1::PlannedUndo {
    let (compensation_fn, compensation_version) = item.compensation.unwrap_or_default();
    let mut planned = v1::PlannedUndo {
        effect_id: item.effect_id.to_string(),
        undo_id: id(item.undo_id),
        position: item.position,
        step_index: item.step_index,
        tool_name: item.tool_name,
        effect_state: item.effect_state.to_string(),
        compensation_fn,
        compensation_version,
        ..v1::PlannedUndo::default()
    };
    if let Some(preview) = item.preview {
        planned.method = preview.method;
        planned.url = preview.url;
        planned.body = preview.body;
        planned.content_type = preview.content_type;
        planned.action = preview.action.to_owned();
        planned.note = preview.note;
        planned.fields_left_out = preview.left_out.into_iter().map(str::to_owned).collect();
    }
    planned
}

fn residue(item: PlannedItem) -> v1::ResidueItem {
    v1::ResidueItem {
        effect_id: item.effect_id.to_string(),
        position: item.position,
        step_index: item.step_index,
        tool_name: item.tool_name,
        effect_state: item.effect_state.to_string(),
    }
}
