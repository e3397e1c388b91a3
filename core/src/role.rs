//! What each role of an API key may call.

use crate::names::named_enum;

named_enum! {
    /// The role of an API key.
    pub enum Role {
        /// An agent: works in its own principal's sessions.
        Agent => "agent",
        /// A proxy that runs approved calls of upstream tools.
        Executor => "executor",
        /// A human who decides approvals.
        Approver => "approver",
        /// A human who settles sessions and dead letters.
        Operator => "operator",
        /// Everything, the registry included.
        Admin => "admin",
    }
}

impl Role {
    /// Whether this role sees and touches only the sessions that its own principal began.
    #[must_use]
    pub const fn is_bound_to_own_sessions(self) -> bool {
        matches!(self, Self::Agent)
    }

    /// Whether this role touches only approved effects of upstream tools.
    #[must_use]
    pub const fn is_bound_to_upstream_tools(self) -> bool {
        matches!(self, Self::Executor)
    }

    /// Whether this role may register a tool with a lower tier, or bind it to a compensation that
    /// is not open.
    #[must_use]
    pub const fn may_weaken_registry(self) -> bool {
        matches!(self, Self::Admin)
    }
}

named_enum! {
    /// Every RPC of the wire, as `Service/Method`.
    pub enum Rpc {
        /// Records a call before it runs.
        Intercept => "UndoLogEngine/Intercept",
        /// Records an outcome.
        Commit => "UndoLogEngine/Commit",
        /// Records a failure.
        Fail => "UndoLogEngine/Fail",
        /// Approves a call.
        Approve => "UndoLogEngine/Approve",
        /// Rejects a call.
        Reject => "UndoLogEngine/Reject",
        /// Begins a session.
        Begin => "UndoLogSessions/Begin",
        /// Renews a session's lease and its grants.
        Heartbeat => "UndoLogSessions/Heartbeat",
        /// Ends a session well.
        Complete => "UndoLogSessions/Complete",
        /// Fails a session.
        FailSession => "UndoLogSessions/FailSession",
        /// Names a position to come back to.
        Savepoint => "UndoLogSessions/Savepoint",
        /// Starts or widens a rollback.
        Rollback => "UndoLogSessions/Rollback",
        /// Reads a session.
        Get => "UndoLogSessions/Get",
        /// Lists sessions.
        List => "UndoLogSessions/List",
        /// Lists a session's effects.
        ListEffects => "UndoLogSessions/ListEffects",
        /// Reads one field of a row, in parts.
        GetValue => "UndoLogSessions/GetValue",
        /// Streams a session's stored results.
        GetReplay => "UndoLogSessions/GetReplay",
        /// Streams events.
        WatchEvents => "UndoLogSessions/WatchEvents",
        /// Registers a tool.
        RegisterTool => "UndoLogRegistry/RegisterTool",
        /// Reads a tool.
        GetTool => "UndoLogRegistry/GetTool",
        /// Lists tools.
        ListTools => "UndoLogRegistry/ListTools",
        /// Takes a tool out of use, or back.
        SetToolActive => "UndoLogRegistry/SetToolActive",
        /// Registers a compensation.
        RegisterCompensation => "UndoLogRegistry/RegisterCompensation",
        /// Reads a compensation.
        GetCompensation => "UndoLogRegistry/GetCompensation",
        /// Lists compensations.
        ListCompensations => "UndoLogRegistry/ListCompensations",
        /// Takes a compensation out of use, or back.
        SetCompensationActive => "UndoLogRegistry/SetCompensationActive",
        /// Lists approval requests.
        ListApprovals => "UndoLogOperator/ListApprovals",
        /// Reads an approval request.
        GetApproval => "UndoLogOperator/GetApproval",
        /// Takes an unused approval back.
        RevokeApproval => "UndoLogOperator/RevokeApproval",
        /// Streams an approval request's decision.
        WatchApproval => "UndoLogOperator/WatchApproval",
        /// Lists effects of which nobody knows whether they happened.
        ListUnknown => "UndoLogOperator/ListUnknown",
        /// Says whether an effect happened.
        ResolveEffect => "UndoLogOperator/ResolveEffect",
        /// Lists dead letters.
        ListDeadLetters => "UndoLogOperator/ListDeadLetters",
        /// Reads a dead letter.
        GetDeadLetter => "UndoLogOperator/GetDeadLetter",
        /// Puts dead letters back to work.
        RetryDeadLetters => "UndoLogOperator/RetryDeadLetters",
        /// Skips dead letters with a reason.
        SkipDeadLetters => "UndoLogOperator/SkipDeadLetters",
        /// Settles dead letters by hand.
        ResolveDeadLetters => "UndoLogOperator/ResolveDeadLetters",
        /// Settles a halted session.
        SettleSession => "UndoLogOperator/SettleSession",
        /// Pauses compensations.
        PauseQueue => "UndoLogOperator/PauseQueue",
        /// Resumes compensations.
        ResumeQueue => "UndoLogOperator/ResumeQueue",
        /// Closes breakers by hand.
        CloseBreaker => "UndoLogOperator/CloseBreaker",
        /// Reads what is due, running and dead.
        GetQueueStatus => "UndoLogOperator/GetQueueStatus",
        /// Stops or forces the brake on mass expiry.
        SetBrake => "UndoLogOperator/SetBrake",
        /// Lists webhooks that were given up.
        ListNotifications => "UndoLogOperator/ListNotifications",
        /// Has webhooks sent again.
        ReplayNotifications => "UndoLogOperator/ReplayNotifications",
        /// Says that proxies run.
        Tick => "UndoLogProxy/Tick",
        /// Lists approved calls that wait for a proxy.
        ListApproved => "UndoLogProxy/ListApproved",
        /// Says whose key a call holds.
        Authenticate => "UndoLogProxy/Authenticate",
    }
}

impl Rpc {
    /// From a request's path, such as `/undolog.v1.UndoLogEngine/Intercept`.
    #[must_use]
    pub fn from_path(path: &str) -> Option<Self> {
        path.strip_prefix("/undolog.v1.")?.parse().ok()
    }
}

/// Whether a role may call an RPC at all. Which sessions and tools it may name there is decided
/// by `Role::is_bound_to_own_sessions` and its siblings.
#[must_use]
pub const fn allows(role: Role, rpc: Rpc) -> bool {
    use Role::{Admin, Agent, Approver, Executor, Operator};
    match rpc {
        Rpc::Intercept | Rpc::Commit | Rpc::Fail | Rpc::Heartbeat => {
            matches!(role, Agent | Executor | Admin)
        }
        Rpc::Approve | Rpc::Reject => matches!(role, Approver | Admin),
        Rpc::Begin | Rpc::Savepoint => matches!(role, Agent | Admin),
        Rpc::Complete | Rpc::FailSession | Rpc::Rollback => {
            matches!(role, Agent | Operator | Admin)
        }
        Rpc::Get
        | Rpc::List
        | Rpc::ListEffects
        | Rpc::GetValue
        | Rpc::GetReplay
        | Rpc::WatchEvents => {
            matches!(role, Agent | Approver | Operator | Admin)
        }
        Rpc::GetTool | Rpc::ListTools | Rpc::GetCompensation | Rpc::ListCompensations => {
            matches!(role, Agent | Approver | Operator | Admin)
        }
        Rpc::ListApprovals | Rpc::GetApproval | Rpc::WatchApproval => {
            matches!(role, Agent | Approver | Operator | Admin)
        }
        // Taking an approval back only makes things safer, so operators may do it too.
        Rpc::RevokeApproval => matches!(role, Approver | Operator | Admin),
        Rpc::ListUnknown
        | Rpc::ListDeadLetters
        | Rpc::GetDeadLetter
        | Rpc::GetQueueStatus
        | Rpc::ListNotifications => matches!(role, Approver | Operator | Admin),
        Rpc::ResolveEffect
        | Rpc::RetryDeadLetters
        | Rpc::SkipDeadLetters
        | Rpc::ResolveDeadLetters
        | Rpc::SettleSession
        | Rpc::PauseQueue
        | Rpc::ResumeQueue
        | Rpc::CloseBreaker
        | Rpc::SetBrake
        | Rpc::ReplayNotifications => matches!(role, Operator | Admin),
        Rpc::RegisterTool => matches!(role, Agent | Admin),
        Rpc::RegisterCompensation | Rpc::SetToolActive | Rpc::SetCompensationActive => {
            matches!(role, Admin)
        }
        Rpc::Tick | Rpc::ListApproved => matches!(role, Executor | Admin),
        Rpc::Authenticate => true,
    }
}
