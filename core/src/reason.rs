//! Every reason for which the engine refuses something, with its gRPC code.

use std::fmt;

use crate::limits::RETRY_AFTER_MS;
use crate::names::named_enum;
use crate::state::SessionState;

/// The domain of every `google.rpc.ErrorInfo`.
pub const ERROR_DOMAIN: &str = "undolog";

named_enum! {
    /// The gRPC codes that refusals use, by their canonical names.
    pub enum Code {
        /// The request itself is wrong, whatever the state.
        InvalidArgument => "INVALID_ARGUMENT",
        /// What it names does not exist for this caller.
        NotFound => "NOT_FOUND",
        /// Something else is already recorded there.
        AlreadyExists => "ALREADY_EXISTS",
        /// The key may not do this.
        PermissionDenied => "PERMISSION_DENIED",
        /// No key, or an unknown one.
        Unauthenticated => "UNAUTHENTICATED",
        /// The state does not allow it.
        FailedPrecondition => "FAILED_PRECONDITION",
        /// A concurrent call is in the way; the same call may work soon.
        Aborted => "ABORTED",
        /// A limit or a rate was exceeded.
        ResourceExhausted => "RESOURCE_EXHAUSTED",
        /// The service cannot answer now.
        Unavailable => "UNAVAILABLE",
        /// A fault of the service.
        Internal => "INTERNAL",
        /// The call took longer than allowed.
        DeadlineExceeded => "DEADLINE_EXCEEDED",
        /// A number is outside the range that exists.
        OutOfRange => "OUT_OF_RANGE",
    }
}

macro_rules! reasons {
    ( $( $variant:ident => $text:literal, $code:ident, $explanation:literal; )+ ) => {
        named_enum! {
            /// Why something was refused (`google.rpc.ErrorInfo.reason`).
            pub enum Reason {
                $( #[doc = $explanation] $variant => $text, )+
            }
        }

        impl Reason {
            /// The gRPC code that carries this reason.
            #[must_use]
            pub const fn code(self) -> Code {
                match self { $( Self::$variant => Code::$code, )+ }
            }

            /// One sentence for a human who meets this reason.
            #[must_use]
            pub const fn explanation(self) -> &'static str {
                match self { $( Self::$variant => $explanation, )+ }
            }
        }
    };
}

reasons! {
    ToolNotRegistered => "TOOL_NOT_REGISTERED", NotFound,
        "The tool, or this version of it, is not registered and active in this organisation.";
    ArgsInvalid => "ARGS_INVALID", InvalidArgument,
        "The arguments are no valid JSON, or do not fit the tool's schema.";
    StepConflict => "STEP_CONFLICT", AlreadyExists,
        "Another call already holds this step of the session.";
    InProgress => "IN_PROGRESS", Aborted,
        "Another caller holds the grant for this call; ask again later.";
    OutcomeUnknown => "OUTCOME_UNKNOWN", FailedPrecondition,
        "Nobody knows whether this call took effect, so it will not run again by itself.";
    ResultConflict => "RESULT_CONFLICT", AlreadyExists,
        "Another outcome is already recorded for this call.";
    SessionNotFound => "SESSION_NOT_FOUND", NotFound,
        "No such session exists for this key.";
    SessionCompleted => "SESSION_COMPLETED", FailedPrecondition,
        "The session is completed and takes no new work.";
    SessionFailed => "SESSION_FAILED", FailedPrecondition,
        "The session failed and takes no new work.";
    SessionCompensating => "SESSION_COMPENSATING", FailedPrecondition,
        "The session is being rolled back.";
    SessionCompensated => "SESSION_COMPENSATED", FailedPrecondition,
        "The session was rolled back.";
    SessionHalted => "SESSION_HALTED", FailedPrecondition,
        "The session is halted until a human decides how it goes on.";
    SessionAwaitingApproval => "SESSION_AWAITING_APPROVAL", FailedPrecondition,
        "The session waits for an approval and starts no new work until it is decided.";
    SessionExpired => "SESSION_EXPIRED", FailedPrecondition,
        "The session's undo window is over: it can be neither replayed nor undone.";
    SessionNotHalted => "SESSION_NOT_HALTED", FailedPrecondition,
        "Only a halted session can be settled.";
    SessionActive => "SESSION_ACTIVE", FailedPrecondition,
        "The session is active, and this needs one that has ended.";
    ApprovalRejected => "APPROVAL_REJECTED", FailedPrecondition,
        "The call was rejected and will never run.";
    ApprovalTimedOut => "APPROVAL_TIMED_OUT", FailedPrecondition,
        "Nobody approved the call in time.";
    ApprovalLapsed => "APPROVAL_LAPSED", FailedPrecondition,
        "The call was approved, but nobody ran it in time.";
    ApprovalRevoked => "APPROVAL_REVOKED", FailedPrecondition,
        "The call's approval was taken back before it ran.";
    ApprovalVoided => "APPROVAL_VOIDED", FailedPrecondition,
        "A rollback of the session took the call's approval away.";
    ApprovalNotFound => "APPROVAL_NOT_FOUND", NotFound,
        "No such approval request exists for this key.";
    ApprovalAlreadyResolved => "APPROVAL_ALREADY_RESOLVED", FailedPrecondition,
        "The approval request was already decided.";
    ArgsModified => "ARGS_MODIFIED", FailedPrecondition,
        "An approver edited the arguments, and this caller did not say that it means the edit.";
    NotGranted => "NOT_GRANTED", FailedPrecondition,
        "This call was never granted, so it has no outcome to report.";
    UndoRunning => "UNDO_RUNNING", Aborted,
        "The call is being undone, or the session undoes a call that was reported late.";
    AlreadyUndone => "ALREADY_UNDONE", FailedPrecondition,
        "The call was undone; use a new step to run it again.";
    UndoFailed => "UNDO_FAILED", FailedPrecondition,
        "Undoing the call failed, and a human has to settle it.";
    CompensationUnusable => "COMPENSATION_UNUSABLE", FailedPrecondition,
        "The call's compensation is not registered, inactive, or cannot be filled in.";
    CompensationRefused => "COMPENSATION_REFUSED", PermissionDenied,
        "The call names another compensation than the registry allows for this tool.";
    CompensationNotFound => "COMPENSATION_NOT_FOUND", NotFound,
        "No such compensation is registered in this organisation.";
    EffectNotFound => "EFFECT_NOT_FOUND", NotFound,
        "No such effect exists for this key.";
    EffectsOpen => "EFFECTS_OPEN", FailedPrecondition,
        "The session still has effects without an outcome.";
    Residue => "RESIDUE", FailedPrecondition,
        "The rollback's scope holds committed irreversible effects, which cannot be undone.";
    StepOrder => "STEP_ORDER", FailedPrecondition,
        "A step to keep was granted after one to undo, so this step is no clean boundary.";
    Contradicted => "CONTRADICTED", AlreadyExists,
        "An operator settled that this call was not applied; the report is kept for review.";
    SignatureMismatch => "SIGNATURE_MISMATCH", InvalidArgument,
        "The supplied signature is not the one of this call.";
    StepInvalid => "STEP_INVALID", InvalidArgument,
        "The step is out of range, or mixes step_index and step_key.";
    AttemptInvalid => "ATTEMPT_INVALID", InvalidArgument,
        "The effect has no such attempt.";
    LimitExceeded => "LIMIT_EXCEEDED", ResourceExhausted,
        "The request, or what it asks for, is larger than a limit allows.";
    RateLimited => "RATE_LIMITED", ResourceExhausted,
        "This key sends requests faster than it may.";
    InvalidArgument => "INVALID_ARGUMENT", InvalidArgument,
        "A field of the request is missing or malformed.";
    Unauthenticated => "UNAUTHENTICATED", Unauthenticated,
        "The API key is missing, unknown or disabled.";
    PermissionDenied => "PERMISSION_DENIED", PermissionDenied,
        "The role of this API key does not allow this.";
    OrgMismatch => "ORG_MISMATCH", PermissionDenied,
        "The request names another organisation than its API key belongs to.";
    OrgNotFound => "ORG_NOT_FOUND", NotFound,
        "No such organisation exists.";
    ProjectNotFound => "PROJECT_NOT_FOUND", NotFound,
        "No such project exists in this organisation.";
    TierLowered => "TIER_LOWERED", PermissionDenied,
        "Only an administrator may register a tool with a lower tier than it has.";
    RegistrationConflict => "REGISTRATION_CONFLICT", AlreadyExists,
        "This name and version is already registered with other contents.";
    SavepointNotFound => "SAVEPOINT_NOT_FOUND", NotFound,
        "The session has no such savepoint.";
    RollbackNotFound => "ROLLBACK_NOT_FOUND", NotFound,
        "No such rollback exists for this key.";
    DeadLetterNotFound => "DEAD_LETTER_NOT_FOUND", NotFound,
        "No such dead letter exists for this key.";
    DeadLetterClosed => "DEAD_LETTER_CLOSED", FailedPrecondition,
        "The dead letter was already settled.";
    CursorInvalid => "CURSOR_INVALID", InvalidArgument,
        "The page token or cursor is none of this list.";
    DeadlineExceeded => "DEADLINE_EXCEEDED", DeadlineExceeded,
        "The request took longer than it may; it was recorded in whole or not at all.";
    Unavailable => "UNAVAILABLE", Unavailable,
        "The service cannot answer now; nothing was recorded.";
    Internal => "INTERNAL", Internal,
        "The service met a fault of its own; its log has the details.";
}

impl Reason {
    /// How long a caller should wait before the same call may work; `None` where waiting is no
    /// help.
    #[must_use]
    pub const fn retry_after_ms(self) -> Option<u64> {
        match self {
            Self::InProgress | Self::UndoRunning | Self::RateLimited | Self::Unavailable => {
                Some(RETRY_AFTER_MS)
            }
            // A human decides: asking more often than this does not make it faster.
            Self::SessionAwaitingApproval => Some(5 * RETRY_AFTER_MS),
            _ => None,
        }
    }

    /// `SESSION_<STATE>` for a session that refuses work; `None` for an active one.
    #[must_use]
    pub const fn of_session(state: SessionState) -> Option<Self> {
        match state {
            SessionState::Active => None,
            SessionState::AwaitingApproval => Some(Self::SessionAwaitingApproval),
            SessionState::Completed => Some(Self::SessionCompleted),
            SessionState::Failed => Some(Self::SessionFailed),
            SessionState::Compensating => Some(Self::SessionCompensating),
            SessionState::Compensated => Some(Self::SessionCompensated),
            SessionState::Halted => Some(Self::SessionHalted),
        }
    }
}

/// A refusal on its way to the caller: a reason, words for a human, and ids for a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The stable reason.
    pub reason: Reason,
    /// What happened, for a human. Holds no arguments, results or secrets.
    pub message: String,
    /// Ids and names for a program (`google.rpc.ErrorInfo.metadata`).
    pub metadata: Vec<(&'static str, String)>,
    /// How long to wait before the same call may work (`google.rpc.RetryInfo`).
    pub retry_after_ms: Option<u64>,
}

impl Refusal {
    /// A refusal with the reason's own words and delay.
    #[must_use]
    pub fn new(reason: Reason) -> Self {
        Self {
            reason,
            message: reason.explanation().to_owned(),
            metadata: Vec::new(),
            retry_after_ms: reason.retry_after_ms(),
        }
    }

    /// A refusal with words of its own.
    #[must_use]
    pub fn because(reason: Reason, message: impl Into<String>) -> Self {
        Self { message: message.into(), ..Self::new(reason) }
    }

    /// Adds an id or a name for a program.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl fmt::Display) -> Self {
        self.metadata.push((key, value.to_string()));
        self
    }

    /// Replaces the reason's own delay.
    #[must_use]
    pub const fn retry_after_ms(mut self, delay_ms: u64) -> Self {
        self.retry_after_ms = Some(delay_ms);
        self
    }

    /// The gRPC code of the reason.
    #[must_use]
    pub const fn code(&self) -> Code {
        self.reason.code()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}

impl std::error::Error for Refusal {}

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Self {
        Self::new(reason)
    }
}
