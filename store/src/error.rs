//! What a step can answer besides its reply.

use undolog_core::reason::{Reason, Refusal};

/// A reply, or a refusal whose transaction is committed all the same (for example because an
/// expired lease was recorded on the way).
pub type Decided<T> = Result<T, Refusal>;

/// Why a step did not commit.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The call is refused and nothing was written.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Postgres said no, or could not be reached.
    #[error("the database did not take the step: {0}")]
    Db(#[from] sqlx::Error),
    /// A row holds what this program cannot read: it is left alone and reported.
    #[error("a stored row cannot be read: {0}")]
    Corrupt(String),
    /// The task that ran the step ended without an answer.
    #[error("the step was interrupted")]
    Interrupted,
}

impl StepError {
    /// A refusal by its reason, with a message for people.
    pub fn refuse(reason: Reason, message: impl Into<String>) -> Self {
        Self::Refused(Refusal::because(reason, message))
    }

    /// Deadlocks and serialisation failures: the same step may be tried again at once.
    pub fn is_conflict(&self) -> bool {
        matches!(self.sqlstate().as_deref(), Some("40P01" | "40001"))
    }

    /// The connection's URL or options are wrong: trying again is no help.
    pub fn is_misconfigured(&self) -> bool {
        matches!(self, Self::Db(sqlx::Error::Configuration(_)))
    }

    /// The SQLSTATE of a database error.
    pub fn sqlstate(&self) -> Option<String> {
        match self {
            Self::Db(sqlx::Error::Database(error)) => error.code().map(|code| code.into_owned()),
            _ => None,
        }
    }

    /// The database could not be reached or had no room or time: the same call may work soon.
    pub fn is_unavailable(&self) -> bool {
        let Self::Db(error) = self else { return false };
        match error {
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed => true,
            sqlx::Error::Database(error) => error.code().is_some_and(|code| {
                // Connections, resources, operators and time-outs, in classes of SQLSTATEs.
                let classes = ["08", "53", "57", "58"];
                let codes = ["40001", "40P01", "55000", "55P03", "25P03", "25006"];
                classes.iter().any(|class| code.starts_with(class))
                    || codes.contains(&code.as_ref())
            }),
            _ => false,
        }
    }
}
