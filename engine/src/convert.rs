//! Between the wire's messages and the journal's types.

use chrono::{DateTime, Datelike as _, Utc};
use tonic::Status;
use undolog_core::reason::{Reason, Refusal};
use undolog_proto::v1;
use uuid::Uuid;

use crate::status;

/// What every request says about its organisation and session.
pub(crate) trait NamesOrg {
    /// The organisation that it names; empty: the key's.
    fn org(&self) -> &str;
    /// The session that it names; empty: none.
    fn session(&self) -> &str {
        ""
    }
}

macro_rules! names_org {
    ($($message:ident),+ $(,)?) => {
        $(impl NamesOrg for v1::$message {
            fn org(&self) -> &str {
                &self.org_id
            }
        })+
    };
}

macro_rules! names_session {
    ($($message:ident),+ $(,)?) => {
        $(impl NamesOrg for v1::$message {
            fn org(&self) -> &str {
                &self.org_id
            }
            fn session(&self) -> &str {
                &self.session_id
            }
        })+
    };
}

names_org! {
    ApproveRequest, RejectRequest, ListSessionsRequest, RegisterToolRequest, GetToolRequest,
    ListToolsRequest, RegisterCompensationRequest, GetCompensationRequest,
    ListCompensationsRequest, GetApprovalRequest, RevokeApprovalRequest, WatchApprovalRequest,
    ListDeadLettersRequest, GetDeadLetterRequest, RetryDeadLettersRequest, SkipDeadLettersRequest,
    ResolveDeadLettersRequest, PauseQueueRequest, ResumeQueueRequest, GetQueueStatusRequest,
    CloseBreakerRequest,
    SetBrakeRequest, ListApprovedRequest, ListNotificationsRequest, ReplayNotificationsRequest,
    SetToolActiveRequest, SetCompensationActiveRequest, GetValueRequest,
}
names_session! {
    CommitRequest, FailRequest, BeginRequest, HeartbeatRequest, CompleteRequest,
    FailSessionRequest, SavepointRequest, RollbackRequest, GetSessionRequest, ListEffectsRequest,
    WatchEventsRequest, ListApprovalsRequest, ListUnknownRequest, ResolveEffectRequest,
    SettleSessionRequest, GetReplayRequest,
}

/// A tick is about the organisation of its key.
impl NamesOrg for v1::TickRequest {
    fn org(&self) -> &str {
        ""
    }
}

impl NamesOrg for v1::InterceptRequest {
    fn org(&self) -> &str {
        self.tool_call.as_ref().map_or("", |call| &call.org_id)
    }
    fn session(&self) -> &str {
        self.tool_call.as_ref().map_or("", |call| &call.session_id)
    }
}

/// A uuid that a request must hold.
pub(crate) fn uuid(field: &'static str, text: &str) -> Result<Uuid, Status> {
    Uuid::parse_str(text).map_err(|_| invalid(format!("{field} is no uuid")))
}

/// A uuid that a request may hold; empty: none.
pub(crate) fn optional_uuid(field: &'static str, text: &str) -> Result<Option<Uuid>, Status> {
    if text.is_empty() { Ok(None) } else { uuid(field, text).map(Some) }
}

/// The refusal of a malformed field.
pub(crate) fn invalid(message: impl Into<String>) -> Status {
    status::of_refusal(&Refusal::because(Reason::InvalidArgument, message))
}

/// A time that a request names.
pub(crate) fn time(
    field: &'static str,
    at: prost_types::Timestamp,
) -> Result<DateTime<Utc>, Status> {
    u32::try_from(at.nanos)
        .ok()
        .and_then(|nanos| DateTime::from_timestamp(at.seconds, nanos))
        // Later years than Postgres and its clients agree about.
        .filter(|time| (0..10_000).contains(&time.year()))
        .ok_or_else(|| invalid(format!("{field} is no time")))
}

/// A time on the wire.
pub(crate) fn timestamp(at: DateTime<Utc>) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: at.timestamp(),
        // A leap second is written as more than a second's nanoseconds.
        nanos: i32::try_from(at.timestamp_subsec_nanos().min(999_999_999)).unwrap_or_default(),
    }
}

/// A count or number of the journal on the wire; none of them is negative.
pub(crate) fn count(number: impl TryInto<u32>) -> u32 {
    number.try_into().unwrap_or_default()
}

/// An id on the wire; empty: none.
pub(crate) fn id(id: Option<Uuid>) -> String {
    id.map(|id| id.to_string()).unwrap_or_default()
}

/// A text that may be empty on the wire, as the journal sees it.
pub(crate) fn given(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}
