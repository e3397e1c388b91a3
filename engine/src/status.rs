//! Refusals and faults as gRPC statuses.
//!
//! A refusal tells its reason, ids and, where it helps, when to ask again. A fault of ours tells an
//! id to look for in the log, and nothing of what happened inside.

use std::{collections::HashMap, time::Duration};

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};
use undolog_core::reason::{self, ERROR_DOMAIN, Reason, Refusal};
use undolog_store::{StepError, quiet::Quiet};
use uuid::Uuid;

/// What was said about a journal that does not answer.
static SAID: Quiet = Quiet::new();

/// The status of a refusal.
pub(crate) fn of_refusal(refusal: &Refusal) -> Status {
    metrics::counter!("undolog_refusals_total", "reason" => refusal.reason.as_str()).increment(1);
    let metadata: HashMap<String, String> =
        refusal.metadata.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    let mut details =
        ErrorDetails::with_error_info(refusal.reason.as_str(), ERROR_DOMAIN, metadata);
    if let Some(delay_ms) = refusal.retry_after_ms {
        details.set_retry_info(Some(Duration::from_millis(delay_ms)));
    }
    Status::with_error_details(code_of(refusal.code()), refusal.message.clone(), details)
}

/// The status of a reason in its own words.
pub(crate) fn of_reason(reason: Reason) -> Status {
    of_refusal(&Refusal::new(reason))
}

/// The status of a step that did not answer. Faults are logged here, once.
pub(crate) fn of_error(error: &StepError) -> Status {
    match error {
        StepError::Refused(refusal) => of_refusal(refusal),
        error if error.is_month_missing() => {
            tracing::error!(error = %error, "this month has no partition: run `undolog migrate`");
            of_refusal(&Refusal::because(
                Reason::Unavailable,
                "the journal has no partition for this month and recorded nothing; whoever runs it \
                 has to run `undolog migrate`",
            ))
        }
        error if error.is_lock_timeout() => of_refusal(&Refusal::because(
            Reason::Unavailable,
            "the session is held by another transaction; nothing was recorded, ask again",
        )),
        error if error.is_unavailable() => {
            if let Some(kept_back) = SAID.may_say(&error.to_string()) {
                tracing::warn!(error = %error, kept_back, "the journal did not answer");
            }
            of_refusal(&Refusal::because(
                Reason::Unavailable,
                "the journal did not answer; the call is recorded whole or not at all, ask again",
            ))
        }
        error => {
            let request_id = Uuid::new_v4();
            tracing::error!(error = %error, request.id = %request_id, "a call met a fault");
            of_refusal(&Refusal::new(Reason::Internal).with("request_id", request_id))
        }
    }
}

fn code_of(code: reason::Code) -> Code {
    match code {
        reason::Code::InvalidArgument => Code::InvalidArgument,
        reason::Code::NotFound => Code::NotFound,
        reason::Code::AlreadyExists => Code::AlreadyExists,
        reason::Code::PermissionDenied => Code::PermissionDenied,
        reason::Code::Unauthenticated => Code::Unauthenticated,
        reason::Code::FailedPrecondition => Code::FailedPrecondition,
        reason::Code::Aborted => Code::Aborted,
        reason::Code::ResourceExhausted => Code::ResourceExhausted,
        reason::Code::Unavailable => Code::Unavailable,
        reason::Code::Internal => Code::Internal,
        reason::Code::DeadlineExceeded => Code::DeadlineExceeded,
        reason::Code::OutOfRange => Code::OutOfRange,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_travels_with_its_domain_ids_and_delay() {
        for &reason in Reason::ALL {
            let refusal = Refusal::new(reason).with("session_id", "x");
            let details = of_refusal(&refusal).get_error_details();
            let info = details.error_info().expect("an ErrorInfo");
            assert_eq!((info.reason.as_str(), info.domain.as_str()), (reason.as_str(), "undolog"));
            assert_eq!(info.metadata["session_id"], "x");
            let delay = details.retry_info().and_then(|retry| retry.retry_delay);
            assert_eq!(delay, reason.retry_after_ms().map(Duration::from_millis));
        }
    }

    #[test]
    fn a_fault_says_nothing_of_what_happened_inside() {
        let status = of_error(&StepError::Corrupt("SELECT secret FROM undolog".to_owned()));
        assert_eq!(status.code(), Code::Internal);
        assert!(!format!("{status:?}").contains("secret"));
        assert!(
            status
                .get_error_details()
                .error_info()
                .is_some_and(|info| { info.metadata.contains_key("request_id") })
        );
    }
}
