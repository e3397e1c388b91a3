//! What humans decide.

use super::{DeadLetter, Effect, PlannedUndo, UndoEntry, shown};
use crate::rest::json::Json;

shown! {
    /// A call that waits, or waited, for a human.
    Approval {
        approval_id: String,
        session_id: String,
        effect_id: String,
        tool_name: String,
        tool_version: String,
        state: String,
        irreversibility_reason: Option<String>,
        risk_tags: Vec<String>,
        estimated_impact: Option<String>,
        proposed_args: Json,
        approved_args: Json,
        agent_context: Json,
        created_at: Option<String>,
        timeout_at: Option<String>,
        auto_approve_on_timeout: bool,
        resolved_at: Option<String>,
        resolved_by: Option<String>,
        quorum: u32,
        votes: u32,
        granted_at: Option<String>,
        effect_state: String,
        requested_by: String,
        requester_may_approve: bool,
        fields_left_out: Vec<String>,
    }

    /// One decision.
    ApprovalEvent {
        action: String,
        actor: String,
        claimed_actor: Option<String>,
        note: Option<String>,
        args_diff: Json,
        occurred_at: Option<String>,
        actor_ip: Option<String>,
        event_id: String,
        fields_left_out: Vec<String>,
    }

    /// One page of approval requests.
    ListApprovalsResponse {
        approvals: Vec<Approval>,
        next_page_token: Option<String>,
    }

    /// An approval request with its history.
    GetApprovalResponse {
        approval: Option<Approval>,
        events: Vec<ApprovalEvent>,
        events_next_page_token: Option<String>,
    }

    /// What was approved.
    ApproveResponse {
        effect_id: String,
        session_id: String,
        tool_name: String,
        tool_version: String,
        args: Json,
    }

    /// The call whose approval was taken back.
    RevokeApprovalResponse {
        effect_id: String,
    }

    /// A settled call.
    ResolveEffectResponse {
        effect_state: String,
        session_state: String,
    }

    /// A dead letter with what it is about.
    DeadLetterItem {
        dead_letter: Option<DeadLetter>,
        tool_name: Option<String>,
        step_index: u32,
        position: u32,
        effect_state: Option<String>,
        session_state: String,
        compensation_fn: Option<String>,
        last_error: Option<String>,
        attempts: u32,
    }

    /// One page of dead letters.
    ListDeadLettersResponse {
        dead_letters: Vec<DeadLetterItem>,
        next_page_token: Option<String>,
    }

    /// One call of a compensation.
    UndoAttempt {
        undo_attempt_id: String,
        round: u32,
        number: u32,
        outcome: String,
        status: u32,
        error: Option<String>,
        response_truncated: bool,
        method: Option<String>,
        url: Option<String>,
        started_at: Option<String>,
        finished_at: Option<String>,
        worker: Option<String>,
        result_known: bool,
    }

    /// A dead letter with all that a human needs.
    GetDeadLetterResponse {
        item: Option<DeadLetterItem>,
        entry: Option<UndoEntry>,
        effect: Option<Effect>,
        attempts: Vec<UndoAttempt>,
        next_call: Option<PlannedUndo>,
        attempts_left_out: u32,
        fields_left_out: Vec<String>,
    }

    /// One dead letter of a request.
    DeadLetterChange {
        dead_letter_id: String,
        session_id: String,
        changed: bool,
        why_not: Option<String>,
    }

    /// What became of the dead letters of a request.
    DeadLettersChanged {
        changes: Vec<DeadLetterChange>,
        matched: u32,
        changed: u32,
        more: bool,
        as_of: Option<String>,
    }

    /// A paused compensation, or all of them.
    Pause {
        compensation_fn: Option<String>,
        paused_at: Option<String>,
        paused_by: String,
        reason: Option<String>,
    }

    /// An endpoint that is given a rest.
    Breaker {
        compensation_fn: String,
        host: String,
        state: String,
        calls: u32,
        failures: u32,
        opened_at: Option<String>,
    }

    /// What is due, running and dead.
    QueueStatus {
        due: u64,
        oldest_due_age_ms: u64,
        running: u64,
        waiting: u64,
        halted: u64,
        dead_letters_open: u64,
        unknown: u64,
        approvals_pending: u64,
        pauses: Vec<Pause>,
        breakers: Vec<Breaker>,
        paused_everywhere: bool,
        brake_state: Option<String>,
        brake_hold_until: Option<String>,
        notifications_pending: u64,
        next_page_token: Option<String>,
    }
}
