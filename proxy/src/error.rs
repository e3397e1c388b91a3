//! What a caller hears when something is refused or fails: one form for every face.

use std::{borrow::Cow, collections::BTreeMap, error::Error as _};

use http::StatusCode;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use undolog_core::reason::{Reason, Refusal};

/// Ids and names that a refusal carries for programs.
pub(crate) type Ids = BTreeMap<String, String>;

/// A refusal or a fault, on its way to the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    pub(crate) code: Cow<'static, str>,
    pub(crate) message: String,
    pub(crate) retry_after_ms: Option<u64>,
    pub(crate) ids: Ids,
    /// What the engine's status was, for whoever has to tell apart what callers need not.
    pub(crate) grpc: Option<Code>,
}

impl Refused {
    /// Refused here, with a reason of the engine's list.
    pub(crate) fn because(reason: Reason, message: impl Into<String>) -> Self {
        Refusal::because(reason, message).into()
    }

    /// Refused here, because the request is malformed.
    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Self::because(Reason::InvalidArgument, message)
    }

    /// With another status than its reason's.
    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// The engine did not answer: nobody knows whether the call arrived.
    fn lost() -> Self {
        Self::because(Reason::Unavailable, "the engine did not answer; ask again")
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self {
            status: status_of(refusal.reason),
            code: Cow::Borrowed(refusal.reason.as_str()),
            message: refusal.message,
            retry_after_ms: refusal.retry_after_ms,
            ids: refusal.metadata.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
            grpc: None,
        }
    }
}

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        Self { grpc: Some(status.code()), ..of_status(&status) }
    }
}

fn of_status(status: &Status) -> Refused {
    let details = status.get_error_details();
    let Some(info) = details.error_info() else { return without_reason(status) };
    let Ok(reason) = info.reason.parse::<Reason>() else {
        // A newer engine knows reasons that this proxy does not; the code still says enough.
        let known = without_reason(status);
        return Refused { code: Cow::Owned(info.reason.clone()), ..known };
    };
    let delay = details.retry_info().and_then(|retry| retry.retry_delay);
    Refused {
        status: status_of(reason),
        code: Cow::Borrowed(reason.as_str()),
        message: status.message().to_owned(),
        retry_after_ms: delay.and_then(|delay| u64::try_from(delay.as_millis()).ok()),
        ids: info.metadata.clone().into_iter().collect(),
        grpc: None,
    }
}

/// A status that names no reason: of the transport, of tonic itself, or of something in between.
fn without_reason(status: &Status) -> Refused {
    // A status with a cause was made here: the connection broke.
    if status.source().is_some() {
        return Refused::lost();
    }
    let message = status.message().to_owned();
    let known = |reason| Refused::because(reason, message.clone());
    match status.code() {
        Code::InvalidArgument => known(Reason::InvalidArgument),
        Code::OutOfRange => of_size(status),
        Code::Unauthenticated => known(Reason::Unauthenticated),
        Code::PermissionDenied => known(Reason::PermissionDenied),
        Code::ResourceExhausted => known(Reason::LimitExceeded),
        Code::DeadlineExceeded => known(Reason::DeadlineExceeded),
        Code::Unimplemented => known(Reason::Unavailable),
        Code::NotFound => Refused::malformed(message).with_status(StatusCode::NOT_FOUND),
        Code::AlreadyExists | Code::FailedPrecondition | Code::Aborted => {
            Refused::malformed(message).with_status(StatusCode::CONFLICT)
        }
        Code::Unavailable | Code::Cancelled | Code::Unknown => Refused::lost(),
        Code::Ok | Code::Internal | Code::DataLoss => known(Reason::Internal),
    }
}

/// What gRPC itself says of a message's size. A body that this proxy took in fits into a message:
/// it is the engine's answer that did not, the fault is ours, and the request was valid.
fn of_size(status: &Status) -> Refused {
    if !status.message().contains("message length too large") {
        return Refused::because(Reason::InvalidArgument, status.message());
    }
    tracing::error!(error = %status, "an answer of the engine is larger than a message may be");
    Refused::because(Reason::Internal, "the engine's answer is larger than a message may be")
}

/// The HTTP status of each reason.
pub(crate) fn status_of(reason: Reason) -> StatusCode {
    use undolog_core::reason::Code as C;
    match reason {
        // Well-formed, but not what this tool, step or compensation takes.
        Reason::ArgsInvalid
        | Reason::SignatureMismatch
        | Reason::StepInvalid
        | Reason::CompensationUnusable => StatusCode::UNPROCESSABLE_ENTITY,
        Reason::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        reason => match reason.code() {
            C::InvalidArgument | C::OutOfRange => StatusCode::BAD_REQUEST,
            C::NotFound => StatusCode::NOT_FOUND,
            C::AlreadyExists | C::FailedPrecondition | C::Aborted => StatusCode::CONFLICT,
            C::PermissionDenied => StatusCode::FORBIDDEN,
            C::Unauthenticated => StatusCode::UNAUTHORIZED,
            C::ResourceExhausted => StatusCode::PAYLOAD_TOO_LARGE,
            C::Unavailable | C::DeadlineExceeded => StatusCode::SERVICE_UNAVAILABLE,
            C::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tonic_types::ErrorDetails;

    use super::*;

    #[test]
    fn no_refusal_looks_like_a_fault_of_ours() {
        for &reason in Reason::ALL {
            let status = status_of(reason);
            let is_ours =
                matches!(reason, Reason::Unavailable | Reason::DeadlineExceeded | Reason::Internal);
            assert_eq!(status.is_server_error(), is_ours, "{reason}");
            assert_eq!(status == StatusCode::INTERNAL_SERVER_ERROR, reason == Reason::Internal);
        }
    }

    #[test]
    fn a_status_keeps_its_reason_ids_and_delay() {
        let ids = [("effect_id".to_owned(), "e".to_owned())];
        let mut details = ErrorDetails::with_error_info("IN_PROGRESS", "undolog", ids);
        details.set_retry_info(Some(Duration::from_millis(1_500)));
        let refused =
            Refused::from(Status::with_error_details(Code::Aborted, "somebody runs it", details));
        assert_eq!(refused.status, StatusCode::CONFLICT);
        assert_eq!((refused.code.as_ref(), refused.retry_after_ms), ("IN_PROGRESS", Some(1_500)));
        assert_eq!(refused.ids["effect_id"], "e");
    }

    #[test]
    fn a_lost_connection_is_retryable_and_a_message_too_large_is_not() {
        let lost = Refused::from(Status::from_error(Box::new(std::io::Error::other("reset"))));
        assert_eq!(
            (lost.status, lost.retry_after_ms.is_some()),
            (StatusCode::SERVICE_UNAVAILABLE, true)
        );
        let large = Refused::from(Status::resource_exhausted("message too large"));
        assert_eq!(large.status, StatusCode::PAYLOAD_TOO_LARGE);
        // What this proxy's own client could not take in is no fault of the caller's request.
        let text = "Error, decoded message length too large: found 12000488 bytes, the limit is: \
                    10485760 bytes";
        let answer = Refused::from(Status::out_of_range(text));
        assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(answer.code, "INTERNAL");
        assert_eq!(Refused::from(Status::out_of_range("?")).status, StatusCode::BAD_REQUEST);
    }
}
