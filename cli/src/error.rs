//! What a subcommand can end with, and the exit code for it.

use std::process::ExitCode;

use serde_json::json;
use tonic_types::StatusExt as _;
use undolog_store::{StepError, catalog::CatalogError, error::Trouble};

/// All is well.
pub const OK: u8 = 0;
/// The request was refused, or something failed.
pub const FAILED: u8 = 1;
/// The command line or the configuration is wrong.
pub const USAGE: u8 = 2;
/// A server could not be reached; the same command may work later.
pub const UNAVAILABLE: u8 = 3;

/// Why a subcommand did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// Refused by the engine or the journal, with its stable reason.
    #[error("{reason}: {message}")]
    Refused {
        /// The stable reason.
        reason: String,
        /// Words for people.
        message: String,
    },
    /// Something failed here.
    #[error("{0}")]
    Failed(String),
    /// The command line, the configuration or an input file is wrong.
    #[error("{0}")]
    Usage(String),
    /// A server cannot be reached.
    #[error("{0}")]
    Unavailable(String),
    /// Whoever read our output has gone.
    #[error("the reader of the output is gone")]
    ReaderGone,
}

impl CliError {
    /// The exit code.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Refused { .. } | Self::Failed(_) => FAILED,
            Self::Usage(_) => USAGE,
            Self::Unavailable(_) => UNAVAILABLE,
            Self::ReaderGone => OK,
        }
    }

    /// The stable reason.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::Refused { reason, .. } => reason,
            Self::Failed(_) => "FAILED",
            Self::Usage(_) => "USAGE",
            Self::Unavailable(_) => "UNAVAILABLE",
            Self::ReaderGone => "READER_GONE",
        }
    }
}

impl From<tonic::Status> for CliError {
    fn from(status: tonic::Status) -> Self {
        let message = status.message().to_owned();
        if let Some(info) = status.get_details_error_info()
            && info.reason != "UNAVAILABLE"
        {
            return Self::Refused { reason: info.reason, message };
        }
        // A status with a cause was made on this side: the connection broke, whatever its code.
        let is_broken = std::error::Error::source(&status).is_some();
        match status.code() {
            tonic::Code::Unavailable | tonic::Code::DeadlineExceeded => {
                Self::Unavailable(format!("the engine does not answer: {message}"))
            }
            _ if is_broken => Self::Unavailable(format!("the engine is gone: {message}")),
            code => Self::Refused { reason: format!("{code:?}"), message },
        }
    }
}

impl From<CatalogError> for CliError {
    fn from(error: CatalogError) -> Self {
        if let CatalogError::Database(error) = &error {
            return Self::of_database(Trouble::of(error), error);
        }
        let is_missing = |kind: &str| kind == "migrations" || kind == "missing_table";
        let findings = error.findings();
        let missing = findings.iter().filter(|finding| is_missing(&finding.kind)).count();
        if missing == 0 || findings.iter().any(|finding| finding.detail.contains("other contents"))
        {
            return Self::Refused {
                reason: "DATABASE_UNFIT".to_owned(),
                message: error.to_string(),
            };
        }
        // The rest of a long list would follow from this one cause.
        Self::Refused {
            reason: "SCHEMA_NOT_CURRENT".to_owned(),
            message: "this database lacks migrations of this build: run `undolog migrate`"
                .to_owned(),
        }
    }
}

impl From<StepError> for CliError {
    fn from(error: StepError) -> Self {
        if let StepError::Refused(refusal) = &error {
            let reason = refusal.reason.as_str().to_owned();
            return Self::Refused { reason, message: refusal.message.clone() };
        }
        match &error {
            StepError::Db(error) => Self::of_database(Trouble::of(error), error),
            _ => Self::Failed(error.to_string()),
        }
    }
}

impl CliError {
    /// What stands in the way of using the database, and whether trying again may help.
    #[must_use]
    pub fn of_database(trouble: Trouble, error: &dyn std::error::Error) -> Self {
        let message = format!("{}: {error}", trouble.in_words());
        let refused =
            |reason: &str| Self::Refused { reason: reason.to_owned(), message: message.clone() };
        match trouble {
            Trouble::Url => Self::Usage(message),
            Trouble::Login => refused("LOGIN_REFUSED"),
            Trouble::NoDatabase => refused("DATABASE_NOT_FOUND"),
            Trouble::Permission => refused("DATABASE_PERMISSION"),
            Trouble::Schema => refused("SCHEMA_NOT_CURRENT"),
            Trouble::Away => Self::Unavailable(message),
            Trouble::Other => Self::Failed(message),
        }
    }
}

/// Writes the error to stderr and answers its exit code.
pub fn report(error: &CliError, json: bool) -> ExitCode {
    if json {
        let message = match error {
            CliError::Refused { message, .. } => message.clone(),
            other => other.to_string(),
        };
        eprintln!("{}", json!({"error": {"reason": error.reason(), "message": message}}));
    } else {
        eprintln!("error: {error}");
    }
    ExitCode::from(error.exit_code())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic_types::ErrorDetails;

    #[test]
    fn a_refusal_keeps_its_reason_and_exits_with_1() {
        let details = ErrorDetails::with_error_info("SESSION_NOT_FOUND", "undolog", []);
        let status =
            tonic::Status::with_error_details(tonic::Code::NotFound, "there is none", details);
        let error = CliError::from(status);
        assert_eq!(error.reason(), "SESSION_NOT_FOUND");
        assert_eq!(error.to_string(), "SESSION_NOT_FOUND: there is none");
        assert_eq!(error.exit_code(), FAILED);
    }

    #[test]
    fn an_engine_that_does_not_answer_exits_with_3() {
        let error = CliError::from(tonic::Status::unavailable("connection refused"));
        assert_eq!(error.exit_code(), UNAVAILABLE);
        let details = ErrorDetails::with_error_info("UNAVAILABLE", "undolog", []);
        let status = tonic::Status::with_error_details(tonic::Code::Unavailable, "busy", details);
        assert_eq!(CliError::from(status).exit_code(), UNAVAILABLE);
    }
}
