//! The real rows, as the driver reads them after each step.

use super::command::{Call, LetterId, Position, RollbackId, Tier, UndoId, Value};

/// `undolog_session_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum SessionState {
    /// active
    #[default]
    Active,
    /// awaiting_approval
    AwaitingApproval,
    /// completed
    Completed,
    /// failed
    Failed,
    /// compensating
    Compensating,
    /// compensated
    Compensated,
    /// halted
    Halted,
}

impl SessionState {
    /// The refusal `SESSION_<STATE>`.
    pub(crate) fn refusal(self) -> &'static str {
        match self {
            SessionState::Active => "SESSION_ACTIVE",
            SessionState::AwaitingApproval => "SESSION_AWAITING_APPROVAL",
            SessionState::Completed => "SESSION_COMPLETED",
            SessionState::Failed => "SESSION_FAILED",
            SessionState::Compensating => "SESSION_COMPENSATING",
            SessionState::Compensated => "SESSION_COMPENSATED",
            SessionState::Halted => "SESSION_HALTED",
        }
    }

    /// Active or awaiting approval.
    pub(crate) fn is_live(self) -> bool {
        matches!(self, SessionState::Active | SessionState::AwaitingApproval)
    }
}

/// `undolog_effect_state` with `failed` and `unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EffectState {
    /// pending: waits for a decision
    Pending,
    /// approved, granted or not
    Approved,
    /// rejected
    Rejected,
    /// executing
    Executing,
    /// committed
    Committed,
    /// failed, remembering NOT_APPLIED
    FailedNotApplied,
    /// failed, remembering MAYBE_APPLIED
    FailedMaybeApplied,
    /// unknown
    Unknown,
    /// compensating
    Compensating,
    /// compensated
    Compensated,
    /// compensation_failed
    CompensationFailed,
}

/// One effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EffectRow {
    /// The call.
    pub(crate) call: Call,
    /// Its state and outcome.
    pub(crate) state: EffectState,
    /// The tier it was recorded with.
    pub(crate) tier: Tier,
    /// `position`: where it was granted.
    pub(crate) position: Option<Position>,
    /// `asked_position` (irreversible).
    pub(crate) asked_position: Option<Position>,
    /// The newest attempt.
    pub(crate) attempt: u32,
    /// Stored successes by attempt, older attempts included.
    pub(crate) results: Vec<(u32, Value)>,
    /// Whether a grant is live.
    pub(crate) live_grant: bool,
}

/// State of an undo entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryState {
    /// pending
    Pending,
    /// running
    Running,
    /// compensated
    Compensated,
    /// failed
    Failed,
    /// skipped
    Skipped,
}

/// One undo entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryRow {
    /// Its id.
    pub(crate) undo_id: UndoId,
    /// Its effect.
    pub(crate) call: Call,
    /// The attempt it undoes.
    pub(crate) attempt: u32,
    /// `stack_position`.
    pub(crate) position: Position,
    /// Its state.
    pub(crate) state: EntryState,
    /// Why it was skipped.
    pub(crate) skip_reason: Option<String>,
}

/// What a rollback was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RollbackKind {
    /// The whole session.
    Whole,
    /// From a position upward; also the one over a late entry.
    Partial,
}

/// State of a rollback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RollbackState {
    /// Waits for live grants in scope.
    Draining,
    /// The drain is over.
    Walking,
    /// Waits for a human; stays the live one.
    Halted,
    /// Finished.
    Ended,
}

/// One rollback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RollbackRow {
    /// Its id.
    pub(crate) id: RollbackId,
    /// Its kind.
    pub(crate) kind: RollbackKind,
    /// Its state.
    pub(crate) state: RollbackState,
    /// `from_position` (0 or less for a whole one).
    pub(crate) from: Position,
    /// `until_position`.
    pub(crate) until: Option<Position>,
    /// Whether it is the live one.
    pub(crate) live: bool,
}

/// One open dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LetterRow {
    /// Its id.
    pub(crate) id: LetterId,
    /// Its effect.
    pub(crate) call: Call,
    /// Its entry; none for an irreversible effect.
    pub(crate) undo_id: Option<UndoId>,
    /// Its reason (`LATE_COMMIT`, `OUTCOME_UNKNOWN`, …).
    pub(crate) reason: String,
}

/// One compensation call that reached the other side, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SentRow {
    /// The entry whose key it carried.
    pub(crate) undo_id: UndoId,
    /// The effect.
    pub(crate) call: Call,
    /// The number of this try of the entry.
    pub(crate) attempt: u32,
    /// The entry's position.
    pub(crate) position: Position,
    /// The driver's step at which it came.
    pub(crate) step: u64,
    /// Whether the other side applied it.
    pub(crate) applied: bool,
}

/// The rows of the session after one step.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Observed {
    /// The session's state.
    pub(crate) session: SessionState,
    /// `settled_at` is set.
    pub(crate) settled: bool,
    /// The last position the session's counter gave.
    pub(crate) last_position: Position,
    /// Its effects.
    pub(crate) effects: Vec<EffectRow>,
    /// Its undo entries.
    pub(crate) entries: Vec<EntryRow>,
    /// Its rollbacks.
    pub(crate) rollbacks: Vec<RollbackRow>,
    /// Its open dead letters.
    pub(crate) letters: Vec<LetterRow>,
    /// `residue_count`.
    pub(crate) residue: u64,
    /// Entries counted as unverified.
    pub(crate) unverified: u64,
    /// Compensations sent since the start, in order.
    pub(crate) sent: Vec<SentRow>,
}

impl Observed {
    /// The effect of a call.
    pub(crate) fn effect(&self, call: Call) -> Option<&EffectRow> {
        self.effects.iter().find(|e| e.call == call)
    }

    /// The entry with this id.
    pub(crate) fn entry(&self, undo_id: UndoId) -> Option<&EntryRow> {
        self.entries.iter().find(|e| e.undo_id == undo_id)
    }

    /// The live rollback.
    pub(crate) fn live_rollback(&self) -> Option<&RollbackRow> {
        self.rollbacks.iter().find(|r| r.live)
    }

    /// The highest entry of one attempt of a call; of the call when the attempt has none.
    pub(crate) fn top_entry(&self, call: Call, attempt: u32) -> Option<&EntryRow> {
        let of_call = || self.entries.iter().filter(move |e| e.call == call);
        of_call()
            .filter(|e| e.attempt == attempt)
            .max_by_key(|e| e.position)
            .or_else(|| of_call().max_by_key(|e| e.position))
    }

    /// Whether some rollback, live or ended, has this position in its scope.
    pub(crate) fn in_scope(&self, position: Position) -> bool {
        self.rollbacks.iter().any(|r| {
            r.kind == RollbackKind::Whole
                || r.from <= position && r.until.is_none_or(|until| position <= until)
        })
    }

    /// The highest position that an effect or an entry holds.
    pub(crate) fn highest(&self) -> Position {
        let entries = self.entries.iter().map(|e| e.position);
        let effects = self.effects.iter().flat_map(|e| [e.position, e.asked_position]).flatten();
        entries.chain(effects).max().unwrap_or(0)
    }

    /// Whether a grant is live on an effect that lies at or above this position.
    pub(crate) fn granted_from(&self, from: Position) -> Option<&EffectRow> {
        self.effects.iter().find(|e| e.live_grant && e.position.is_some_and(|p| p >= from))
    }
}
