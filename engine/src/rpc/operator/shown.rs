//! The journal's rows as the messages of operators.

use undolog_proto::v1;
use undolog_store::read::{ApprovalEventView, ApprovalView};

use crate::convert::{count, timestamp};

pub(super) fn approval(view: ApprovalView) -> v1::Approval {
    v1::Approval {
        approval_id: view.approval_id.to_string(),
        session_id: view.session_id.to_string(),
        effect_id: view.effect_id.to_string(),
        tool_name: view.tool_name,
        tool_version: view.tool_version,
        state: view.state.to_string(),
        irreversibility_reason: view.irreversibility_reason,
        risk_tags: view.risk_tags,
        estimated_impact: view.estimated_impact.unwrap_or_default(),
        proposed_args: view.proposed_args,
        approved_args: view.approved_args,
        agent_context: view.agent_context,
        created_at: Some(timestamp(view.created_at)),
        timeout_at: Some(timestamp(view.timeout_at)),
        auto_approve_on_timeout: view.auto_approve_on_timeout,
        resolved_at: view.resolved_at.map(timestamp),
        resolved_by: view.resolved_by.unwrap_or_default(),
        quorum: count(view.quorum),
        votes: count(view.votes),
        granted_at: view.granted_at.map(timestamp),
        effect_state: view.effect_state,
        requested_by: view.requested_by,
        requester_may_approve: view.requester_may_approve,
    }
}

pub(super) fn approval_event(view: ApprovalEventView) -> v1::ApprovalEvent {
    v1::ApprovalEvent {
        action: view.action,
        actor: view.actor,
        claimed_actor: view.claimed_actor.unwrap_or_default(),
        note: view.note.unwrap_or_default(),
        args_diff: view.args_diff.unwrap_or_default().into_bytes(),
        occurred_at: Some(timestamp(view.occurred_at)),
    }
}
