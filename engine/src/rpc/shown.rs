//! The journal's rows as messages.

use tonic::Status;
use undolog_proto::v1;
use undolog_store::{
    StepError, payload,
    read::{DeadLetterView, EffectView, RollbackView, SessionView, UndoView},
    registry::{CompensationRow, ToolRow},
    watch::WatchedEvent,
};

use crate::{
    convert::{count, id, timestamp},
    status,
};

pub(super) fn session(view: SessionView) -> v1::Session {
    v1::Session {
        session_id: view.session_id.to_string(),
        org_id: view.org_id.to_string(),
        project_id: id(view.project_id),
        external_run_id: view.external_run_id.unwrap_or_default(),
        agent_name: view.agent_name.unwrap_or_default(),
        state: view.state,
        tool_calls_total: count(view.tool_calls_total),
        compensations_total: count(view.compensations_total),
        approvals_pending: count(view.approvals_pending),
        started_at: Some(timestamp(view.started_at)),
        completed_at: view.completed_at.map(timestamp),
        failed_at: view.failed_at.map(timestamp),
        failure_reason: view.failure_reason.unwrap_or_default(),
        metadata: view.metadata,
        principal: view.principal,
        implicit: view.implicit,
        lease_expires_at: view.lease_expires_at.map(timestamp),
        residue_count: count(view.residue_count),
        unverified_count: count(view.unverified_count),
        next_position: count(view.next_position),
        next_step_index: count(view.next_step_index),
        settled_at: view.settled_at.map(timestamp),
        dead_letters_open: count(view.dead_letters_open),
    }
}

pub(super) fn undo_entry(view: UndoView) -> v1::UndoEntry {
    let left_out = view.args_left_out.then(|| "compensation_args".to_owned());
    v1::UndoEntry {
        undo_id: view.undo_id.to_string(),
        effect_id: view.effect_id.to_string(),
        attempt: count(view.attempt),
        position: count(view.position),
        compensation_fn: view.compensation_fn,
        compensation_version: view.compensation_version,
        compensation_args: view.compensation_args,
        state: view.state,
        retry_count: count(view.retry_count),
        max_retries: count(view.max_retries),
        retry_backoff_ms: count(view.retry_backoff_ms),
        last_error: view.last_error.unwrap_or_default(),
        skip_reason: view.skip_reason.unwrap_or_default(),
        registered_at: Some(timestamp(view.registered_at)),
        compensated_at: view.compensated_at.map(timestamp),
        next_try_at: view.next_try_at.map(timestamp),
        fields_left_out: left_out.into_iter().collect(),
    }
}

pub(super) fn rollback(view: RollbackView) -> v1::Rollback {
    v1::Rollback {
        rollback_id: view.rollback_id.to_string(),
        kind: view.kind,
        state: view.state,
        from_position: count(view.from_position),
        requested_by: view.requested_by,
        reason: view.reason,
        created_at: Some(timestamp(view.created_at)),
        due_at: Some(timestamp(view.due_at)),
        finished_at: view.finished_at.map(timestamp),
        residue_count: count(view.residue_count),
        unverified_count: count(view.unverified_count),
    }
}

pub(super) fn dead_letter(view: DeadLetterView) -> v1::DeadLetter {
    v1::DeadLetter {
        dead_letter_id: view.dead_letter_id.to_string(),
        session_id: view.session_id.to_string(),
        effect_id: view.effect_id.to_string(),
        undo_id: id(view.undo_id),
        rollback_id: id(view.rollback_id),
        reason: view.reason,
        detail: view.detail,
        created_at: Some(timestamp(view.created_at)),
        closed_at: view.closed_at.map(timestamp),
        closed_by: view.closed_by.unwrap_or_default(),
        resolution: view.resolution.unwrap_or_default(),
        note: view.note.unwrap_or_default(),
        fields_left_out: Vec::new(),
    }
}

pub(super) fn effect(view: EffectView) -> v1::Effect {
    v1::Effect {
        effect_id: view.effect_id.to_string(),
        session_id: view.session_id.to_string(),
        tool_id: id(view.tool_id),
        tool_name: view.tool_name,
        tool_version: view.tool_version,
        tier: view.tier,
        step_index: count(view.step_index),
        step_key: view.step_key.unwrap_or_default(),
        call_signature: view.call_signature,
        args: view.args,
        result: view.result,
        state: view.state,
        attempt: count(view.attempt),
        position: view.position.map(count).unwrap_or_default(),
        outcome: view.outcome.unwrap_or_default(),
        error: view.error.unwrap_or_default(),
        duration_ms: view.duration_ms.and_then(|ms| u64::try_from(ms).ok()).unwrap_or_default(),
        executed_at: Some(timestamp(view.executed_at)),
        committed_at: view.committed_at.map(timestamp),
        compensated_at: view.compensated_at.map(timestamp),
        lease_expires_at: view.lease_expires_at.map(timestamp),
        replay_count: count(view.replay_count),
        approval_request_id: id(view.approval_request_id),
        compensation_args: view.compensation_args,
        fields_left_out: Vec::new(),
    }
}

pub(super) fn event(event: WatchedEvent) -> v1::Event {
    v1::Event {
        cursor: event.cursor,
        session_id: event.session_id.to_string(),
        seq: u64::try_from(event.seq).unwrap_or_default(),
        kind: event.kind,
        subject: event.subject,
        subject_id: event.subject_id.to_string(),
        from_state: event.from_state.unwrap_or_default(),
        to_state: event.to_state.unwrap_or_default(),
        attempt: event.attempt.map(count).unwrap_or_default(),
        actor: event.actor,
        occurred_at: Some(timestamp(event.occurred_at)),
        detail: event.detail.into_bytes(),
    }
}

pub(super) fn tool(row: ToolRow) -> Result<v1::Tool, Status> {
    Ok(v1::Tool {
        tool_id: row.tool_id.to_string(),
        tool_name: row.tool_name,
        tool_version: row.tool_version,
        tier: row.tier,
        irreversibility_reason: row.irreversibility_reason.unwrap_or_default(),
        compensation_ref: row.compensation_ref.unwrap_or_default(),
        tool_schema: json(&row.tool_schema)?,
        risk_tags: row.risk_tags,
        estimated_impact: row.estimated_impact.unwrap_or_default(),
        is_active: row.is_active,
        project_id: id(row.project_id),
        idempotent: row.idempotent,
        grant_lease_ms: row.grant_lease_ms.map(count).unwrap_or_default(),
        max_execution_ms: row.max_execution_ms.map(count).unwrap_or_default(),
        allowed_compensations: row.allowed_compensations,
        registered_at: Some(timestamp(row.registered_at)),
        updated_at: Some(timestamp(row.updated_at)),
        approval_timeout_seconds: row.approval_timeout_seconds.map(count).unwrap_or_default(),
        auto_approve_on_timeout: row.auto_approve_on_timeout,
        approval_quorum: row.approval_quorum.map(count).unwrap_or_default(),
        requester_may_approve: row.requester_may_approve,
        probe: row.probe.map(|probe| json(&probe)).transpose()?.unwrap_or_default(),
        execute_on_approval: row.upstream.is_some().then_some(row.execute_on_approval),
        upstream: row.upstream.map(|node| json(&node)).transpose()?.unwrap_or_default(),
        compensation_args: row
            .compensation_args
            .map(|node| json(&node))
            .transpose()?
            .unwrap_or_default(),
        caller_args: row.caller_args,
    })
}

pub(super) fn compensation(row: CompensationRow) -> Result<v1::Compensation, Status> {
    Ok(v1::Compensation {
        compensation_id: row.compensation_id.to_string(),
        fn_name: row.fn_name,
        fn_version: row.fn_version,
        description: row.description,
        fn_body: json(&row.fn_body)?,
        args_schema: json(&row.args_schema)?,
        max_retries: Some(count(row.max_retries)),
        retry_backoff_ms: Some(count(row.retry_backoff_ms)),
        is_active: row.is_active,
        open: row.open,
        registered_at: Some(timestamp(row.registered_at)),
        concurrency_max: row.concurrency_max.map(count),
        rate_per_minute: row.rate_per_minute.map(count),
        result_from: row.result_from,
    })
}

/// A registration's JSON in canonical form.
fn json(stored: &str) -> Result<Vec<u8>, Status> {
    payload::text(stored, None).map_err(|error: StepError| status::of_error(&error))
}
