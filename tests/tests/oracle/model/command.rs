//! What a driver does, what it hears, and the policies of the session.

/// The driver's number for one call (one signature); the driver maps effect ids to it.
pub(crate) type Call = u32;
/// A place in the session's one order.
pub(crate) type Position = i64;
/// The result of a call, as a number that the driver wraps into a tool result.
pub(crate) type Value = i64;
/// The driver's number for an undo id.
pub(crate) type UndoId = u64;
/// The driver's number for a dead letter.
pub(crate) type LetterId = u64;
/// The driver's number for a rollback row.
pub(crate) type RollbackId = u64;

/// The tier of a tool that leaves a row (a SAFE one leaves none, so it is not modelled).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    /// It has a compensation.
    Compensable,
    /// It needs a decision first.
    Irreversible,
}

/// What the registry says about the called tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tool {
    /// Its tier.
    pub(crate) tier: Tier,
    /// Registered as idempotent: may be granted again while the outcome is unknown.
    pub(crate) idempotent: bool,
    /// Its compensation may be run again under a new undo id (a late result).
    pub(crate) repeatable: bool,
}

impl Tool {
    /// A compensable tool that is neither idempotent nor repeatable.
    pub(crate) const COMPENSABLE: Tool =
        Tool { tier: Tier::Compensable, idempotent: false, repeatable: false };
    /// A compensable tool whose compensation is repeatable.
    pub(crate) const REPEATABLE: Tool =
        Tool { tier: Tier::Compensable, idempotent: false, repeatable: true };
    /// An irreversible tool.
    pub(crate) const IRREVERSIBLE: Tool =
        Tool { tier: Tier::Irreversible, idempotent: false, repeatable: false };
}

/// What a Fail says about the world (`FailRequest.effect`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailEffect {
    /// The default: it may have been applied.
    MaybeApplied,
    /// It was certainly not applied.
    NotApplied,
    /// The caller cannot know.
    Unknown,
}

/// What an operator or a probe says about an effect whose outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It was applied; the stored result is this value.
    Committed(Value),
    /// It was not applied.
    NotApplied,
}

/// How a compensation call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// 2xx or a done status.
    Done,
    /// A failure that is tried again.
    Retry,
    /// A failure that is not tried again, or the last try.
    Permanent,
}

/// One step of the walker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerStep {
    /// Claims the rollback.
    Claim,
    /// Looks whether the drain is over, writes the outcome of its last call to the entry, writes
    /// the next attempt, calls, and hears this.
    Call(Outcome),
    /// The walker dies with the attempt written and the call not made.
    KillBeforeCall,
    /// The walker dies with the call made and its outcome not written.
    KillAfterCall,
    /// Any number of the above; the driver does not say which.
    Any,
}

/// One operation on the real system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Intercept of a call.
    Intercept {
        /// The call.
        call: Call,
        /// Its step index.
        step: i64,
        /// Its tool, as registered now.
        tool: Tool,
        /// The grant token; 0 = none.
        token: u64,
    },
    /// Commit with success.
    Commit {
        /// The call.
        call: Call,
        /// The attempt named; 0 = newest.
        attempt: u32,
        /// The result.
        value: Value,
    },
    /// Fail, or Commit with `success=false`.
    Fail {
        /// The call.
        call: Call,
        /// The attempt named; 0 = newest.
        attempt: u32,
        /// What it says about the world.
        effect: FailEffect,
    },
    /// Heartbeat of one grant.
    Heartbeat {
        /// The call.
        call: Call,
        /// The attempt named.
        attempt: u32,
    },
    /// Savepoint; answers [`Answer::At`].
    Savepoint,
    /// Rollback to a savepoint.
    RollbackPartial {
        /// The savepoint.
        to: Position,
        /// Committed irreversible effects in scope are accepted.
        allow_residue: bool,
    },
    /// Rollback to a step.
    RollbackToStep {
        /// Steps above this one are undone.
        step: i64,
        /// Committed irreversible effects in scope are accepted.
        allow_residue: bool,
    },
    /// Rollback of the whole session.
    RollbackWhole,
    /// A human approves.
    Approve {
        /// The call.
        call: Call,
    },
    /// A human rejects.
    Reject {
        /// The call.
        call: Call,
    },
    /// The sweep resolves an approval that is past its deadline.
    ApprovalTimeout {
        /// The call.
        call: Call,
    },
    /// An ungranted approval is revoked.
    Revoke {
        /// The call.
        call: Call,
    },
    /// An ungranted approval lapses (24 h).
    ApprovalLapses {
        /// The call.
        call: Call,
    },
    /// The lease of a grant is over and was swept, with no report.
    GrantLeaseExpires {
        /// The call.
        call: Call,
    },
    /// The session's lease is lost: the sweep failed the session.
    SessionLeaseLost,
    /// Complete.
    Complete {
        /// Waives unknown effects.
        accept_unknown: bool,
    },
    /// Fail of the session.
    FailSession {
        /// Whether it asks for the rollback.
        rollback: bool,
    },
    /// A step of the walker.
    Worker(WorkerStep),
    /// The success of a compensation whose worker had been given up is written now.
    LateSuccess {
        /// The entry.
        undo_id: UndoId,
    },
    /// An operator retries a dead letter.
    OperatorRetry {
        /// The letter.
        letter: LetterId,
    },
    /// An operator skips a dead letter with a reason.
    OperatorSkip {
        /// The letter.
        letter: LetterId,
    },
    /// An operator resolves a dead letter by hand with a note.
    OperatorResolve {
        /// The letter.
        letter: LetterId,
    },
    /// An operator (or a probe) settles an unknown or maybe-applied effect.
    OperatorResolveUnknown {
        /// The call.
        call: Call,
        /// What it says.
        verdict: Verdict,
    },
    /// `sessions settle`.
    SessionSettle,
    /// The database's clock jumps.
    ClockStep {
        /// By so many minutes, either way.
        minutes: i64,
    },
}

/// What the driver heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// You may execute now.
    Execute {
        /// Under this attempt.
        attempt: u32,
    },
    /// A stored result.
    Replay {
        /// The result.
        value: Value,
    },
    /// Wait for a decision.
    AwaitingApproval,
    /// A position (Savepoint).
    At(Position),
    /// Accepted.
    Ok,
    /// An error status.
    Refused {
        /// ErrorInfo.reason; the status name when there is none.
        reason: String,
        /// RetryInfo came with it.
        retry: bool,
    },
}

impl Answer {
    /// A refusal without RetryInfo.
    pub(crate) fn refused(reason: &str) -> Answer {
        Answer::Refused { reason: reason.to_owned(), retry: false }
    }
}

/// Session policy `on_tool_failure`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum OnToolFailure {
    /// A Fail fails the session and starts the rollback (documented).
    #[default]
    Rollback,
    /// A Fail is only recorded.
    Continue,
}

/// Organisation policy `on_dead_letter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum OnDeadLetter {
    /// The walk stops (documented).
    #[default]
    Halt,
    /// The walk goes on and the session halts at the end.
    Continue,
}

/// Session policy `on_rejection`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum OnRejection {
    /// The session halts (documented).
    #[default]
    Halt,
    /// The whole rollback starts.
    Rollback,
}

/// The policies of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Config {
    /// `on_tool_failure`.
    pub(crate) on_tool_failure: OnToolFailure,
    /// `on_dead_letter`.
    pub(crate) on_dead_letter: OnDeadLetter,
    /// `on_rejection`.
    pub(crate) on_rejection: OnRejection,
    /// An approval that times out is approved by policy.
    pub(crate) auto_approve: bool,
    /// `STEP_CONFLICT` policy `allow`.
    pub(crate) steps_shared: bool,
}
