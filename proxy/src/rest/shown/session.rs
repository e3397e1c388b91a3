//! Sessions and what belongs to them.

use super::shown;
use crate::rest::json::Json;

shown! {
    /// A session.
    Session {
        session_id: String,
        org_id: String,
        project_id: Option<String>,
        external_run_id: Option<String>,
        agent_name: Option<String>,
        state: String,
        tool_calls_total: u32,
        compensations_total: u32,
        approvals_pending: u32,
        started_at: Option<String>,
        completed_at: Option<String>,
        failed_at: Option<String>,
        failure_reason: Option<String>,
        metadata: Json,
        principal: String,
        implicit: bool,
        lease_expires_at: Option<String>,
        residue_count: u32,
        unverified_count: u32,
        next_position: u32,
        next_step_index: u32,
        settled_at: Option<String>,
        dead_letters_open: u32,
    }

    /// One call that will be undone.
    UndoEntry {
        undo_id: String,
        effect_id: String,
        attempt: u32,
        position: u32,
        compensation_fn: String,
        compensation_version: String,
        compensation_args: Json,
        state: String,
        retry_count: u32,
        max_retries: u32,
        retry_backoff_ms: u32,
        last_error: Option<String>,
        skip_reason: Option<String>,
        registered_at: Option<String>,
        compensated_at: Option<String>,
        next_try_at: Option<String>,
        fields_left_out: Vec<String>,
    }

    /// One request to undo.
    Rollback {
        rollback_id: String,
        kind: String,
        state: String,
        from_position: u32,
        requested_by: String,
        reason: String,
        created_at: Option<String>,
        due_at: Option<String>,
        finished_at: Option<String>,
        residue_count: u32,
        unverified_count: u32,
    }

    /// What only a human can settle.
    DeadLetter {
        dead_letter_id: String,
        session_id: String,
        effect_id: Option<String>,
        undo_id: Option<String>,
        rollback_id: Option<String>,
        reason: String,
        detail: String,
        created_at: Option<String>,
        closed_at: Option<String>,
        closed_by: Option<String>,
        resolution: Option<String>,
        note: Option<String>,
        fields_left_out: Vec<String>,
    }

    /// A session with its undo stack, rollbacks and dead letters.
    GetSessionResponse {
        session: Option<Session>,
        undo_stack: Vec<UndoEntry>,
        rollbacks: Vec<Rollback>,
        dead_letters: Vec<DeadLetter>,
        undo_next_page_token: Option<String>,
        rollbacks_next_page_token: Option<String>,
        dead_letters_next_page_token: Option<String>,
    }

    /// One page of sessions.
    ListSessionsResponse {
        sessions: Vec<Session>,
        next_page_token: Option<String>,
    }

    /// One recorded tool call.
    Effect {
        effect_id: String,
        session_id: String,
        tool_id: Option<String>,
        tool_name: String,
        tool_version: String,
        tier: String,
        step_index: u32,
        step_key: Option<String>,
        call_signature: String,
        args: Json,
        result: Json,
        state: String,
        attempt: u32,
        position: u32,
        outcome: Option<String>,
        error: Option<String>,
        duration_ms: u64,
        executed_at: Option<String>,
        committed_at: Option<String>,
        compensated_at: Option<String>,
        lease_expires_at: Option<String>,
        replay_count: u32,
        approval_request_id: Option<String>,
        compensation_args: Json,
        fields_left_out: Vec<String>,
    }

    /// One page of a session's calls.
    ListEffectsResponse {
        effects: Vec<Effect>,
        next_page_token: Option<String>,
    }

    /// A begun session.
    BeginResponse {
        session_id: String,
        state: String,
        started_at: Option<String>,
        lease_expires_at: Option<String>,
        existed: bool,
    }

    /// One grant after a heartbeat.
    GrantStatus {
        effect_id: String,
        attempt: u32,
        state: String,
        lease_expires_at: Option<String>,
        stop: bool,
    }

    /// A session after a heartbeat.
    HeartbeatResponse {
        state: String,
        stop: bool,
        lease_expires_at: Option<String>,
        grants: Vec<GrantStatus>,
    }

    /// A completed session.
    CompleteResponse {
        state: String,
    }

    /// A failed session.
    FailSessionResponse {
        state: String,
        rollback_id: Option<String>,
    }

    /// A place to come back to.
    SavepointResponse {
        position: u32,
        next_step_index: u32,
    }

    /// One compensation that a rollback will call.
    PlannedUndo {
        effect_id: String,
        undo_id: Option<String>,
        position: u32,
        step_index: u32,
        tool_name: String,
        effect_state: String,
        compensation_fn: String,
        compensation_version: String,
        method: Option<String>,
        url: Option<String>,
        body: Json,
        content_type: Option<String>,
        action: Option<String>,
        note: Option<String>,
        fields_left_out: Vec<String>,
    }

    /// One irreversible call that stays.
    ResidueItem {
        effect_id: String,
        position: u32,
        step_index: u32,
        tool_name: String,
        effect_state: String,
    }

    /// A rollback that was begun, or what it would do.
    RollbackResponse {
        rollback_id: Option<String>,
        state: String,
        next_step_index: u32,
        plan: Vec<PlannedUndo>,
        residue: Vec<ResidueItem>,
        voided_approvals: Vec<String>,
        truncated: bool,
        next_page_token: Option<String>,
    }

    /// One thing that happened.
    Event {
        cursor: String,
        session_id: String,
        seq: u64,
        kind: String,
        subject: String,
        subject_id: String,
        from_state: Option<String>,
        to_state: Option<String>,
        attempt: u32,
        actor: String,
        occurred_at: Option<String>,
        detail: Json,
    }
}
