//! The journal's rows as the messages of operators.

use undolog_proto::v1;
use undolog_store::{
    operate::{DeadLetterItem, NotificationView, UndoAttemptView, UnknownEffect},
    read::{ApprovalEventView, ApprovalView},
};

use super::super::{fit::listed, shown as rows};
use crate::convert::{count, timestamp};

pub(in crate::rpc) fn approval(view: ApprovalView) -> v1::Approval {
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
        fields_left_out: Vec::new(),
    }
}

pub(in crate::rpc) fn approval_event(view: ApprovalEventView) -> v1::ApprovalEvent {
    let left_out = view.diff_left_out.then(|| "args_diff".to_owned());
    v1::ApprovalEvent {
        action: view.action,
        actor: view.actor,
        claimed_actor: view.claimed_actor.unwrap_or_default(),
        note: view.note.unwrap_or_default(),
        args_diff: view.args_diff.unwrap_or_default().into_bytes(),
        occurred_at: Some(timestamp(view.occurred_at)),
        actor_ip: view.actor_ip.unwrap_or_default(),
        event_id: view.event_id.to_string(),
        fields_left_out: left_out.into_iter().collect(),
    }
}

pub(super) fn notification(view: NotificationView) -> v1::Notification {
    v1::Notification {
        notification_id: view.notification_id.to_string(),
        session_id: view.session_id.to_string(),
        kind: view.kind,
        state: view.state,
        body: view.body.into_bytes(),
        attempts: count(view.attempts),
        last_error: view.last_error.unwrap_or_default(),
        created_at: Some(timestamp(view.created_at)),
        due_at: Some(timestamp(view.due_at)),
        finished_at: view.finished_at.map(timestamp),
        replayed_at: view.replayed_at.map(timestamp),
        replayed_by: view.replayed_by.unwrap_or_default(),
    }
}

pub(super) fn unknown(row: UnknownEffect) -> v1::UnknownEffect {
    v1::UnknownEffect {
        effect: Some(listed(rows::effect(row.effect))),
        session_state: row.session_state,
        lost_at: Some(timestamp(row.lost_at)),
        granted_at: row.granted_at.map(timestamp),
        probe_answer: row.probe_answer.unwrap_or_default(),
        probe_error: row.probe_error.unwrap_or_default(),
        probe_count: count(row.probe_count),
        has_probe: row.has_probe,
    }
}

pub(super) fn dead_letter(item: DeadLetterItem) -> v1::DeadLetterItem {
    v1::DeadLetterItem {
        dead_letter: Some(rows::dead_letter(item.dead_letter)),
        tool_name: item.tool_name,
        step_index: count(item.step_index),
        position: count(item.position),
        effect_state: item.effect_state,
        session_state: item.session_state,
        compensation_fn: item.compensation_fn,
        last_error: item.last_error.unwrap_or_default(),
        attempts: count(item.attempts),
    }
}

pub(super) fn undo_attempt(view: UndoAttemptView) -> v1::UndoAttempt {
    v1::UndoAttempt {
        undo_attempt_id: view.undo_attempt_id.to_string(),
        round: count(view.round),
        number: count(view.number),
        outcome: view.outcome.unwrap_or_default(),
        status: view.status.map(count).unwrap_or_default(),
        error: view.error.unwrap_or_default(),
        response_excerpt: view.response,
        response_truncated: view.response_truncated,
        method: view.method,
        url: view.url,
        started_at: Some(timestamp(view.started_at)),
        finished_at: view.finished_at.map(timestamp),
        worker: view.worker,
        result_known: view.result_known,
    }
}
