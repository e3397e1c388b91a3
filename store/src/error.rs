//! What a step can answer besides its reply.

use sqlx::postgres::{PgDatabaseError, PgSeverity};
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
    /// The step needs work done that no transaction waits for; its runner does it and runs the
    /// step again.
    #[error("the step needs a schema that is not compiled or a check that is not made")]
    Apart(crate::registry::Apart),
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

    /// The database could not be reached, had no room or time, or cannot take it as it stands:
    /// nothing was decided, and the same call may work soon.
    pub fn is_unavailable(&self) -> bool {
        let Self::Db(error) = self else { return false };
        match error {
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed => true,
            sqlx::Error::Database(error) => {
                // Whatever its code, it ended the connection; at its start it is all that is heard.
                is_fatal(error.as_ref())
                    || error.code().is_some_and(|code| leaves_undecided(&code))
                    || self.is_month_missing()
            }
            _ => false,
        }
    }

    /// Somebody held a lock for longer than the statement was to wait; the step can be tried again.
    pub fn is_lock_timeout(&self) -> bool {
        self.sqlstate().as_deref() == Some("55P03")
    }

    /// A row belongs to a month that has no partition: only a rule of the table itself has no name.
    pub fn is_month_missing(&self) -> bool {
        let Self::Db(sqlx::Error::Database(error)) = self else { return false };
        let is_missing = error.code().as_deref() == Some("23514") && error.constraint().is_none();
        is_missing && crate::guard!("error.undecided")
    }

    /// The connection ended before this was asked: the server was restarted, or somebody cut it.
    pub fn is_connection_lost(&self) -> bool {
        use std::io::ErrorKind;
        match self {
            Self::Db(sqlx::Error::Io(error)) => matches!(
                error.kind(),
                ErrorKind::ConnectionReset
                    | ErrorKind::ConnectionAborted
                    | ErrorKind::BrokenPipe
                    | ErrorKind::UnexpectedEof
            ),
            _ => matches!(self.sqlstate().as_deref(), Some("57P01" | "57P02" | "57P05")),
        }
    }

    /// The connection is not what we take it for, and others that are open may be like it: it is
    /// lost or read-only, or its prepared statements are gone or belong to an older schema.
    pub fn spoils_connections(&self) -> bool {
        self.is_connection_lost()
            || matches!(self.sqlstate().as_deref(), Some("25006" | "26000" | "42P05" | "0A000"))
    }
}

/// What stands in the way of using a database, for those who set it up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The URL or an option in it cannot be read.
    Url,
    /// The server does not take this login or its password.
    Login,
    /// The server has no such database.
    NoDatabase,
    /// The login or its role may not do this.
    Permission,
    /// Tables, columns, functions or roles are missing.
    Schema,
    /// Nobody answers there, or not now: the same may work soon.
    Away,
    /// Something else.
    Other,
}

impl Trouble {
    /// What this error of the client library says.
    pub fn of(error: &sqlx::Error) -> Self {
        match error {
            sqlx::Error::Configuration(_) => Self::Url,
            sqlx::Error::Database(error) => match error.code().as_deref() {
                Some(code) if code.starts_with("28") => Self::Login,
                Some("3D000") => Self::NoDatabase,
                Some("42501") => Self::Permission,
                // A role that was asked for when connecting and does not exist is 22023.
                Some("42P01" | "42703" | "42704" | "42883" | "3F000" | "22023") => Self::Schema,
                Some(code) if is_fatal(error.as_ref()) || leaves_undecided(code) => Self::Away,
                _ => Self::Other,
            },
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed => Self::Away,
            _ => Self::Other,
        }
    }

    /// What is said before the database's own words.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Url => "the database URL cannot be used",
            Self::Login => "the database refuses the login",
            Self::NoDatabase => "there is no such database",
            Self::Permission => "the database login lacks a right",
            Self::Schema => "the database lacks what this build needs: run `undolog migrate` first",
            Self::Away => "the database does not answer",
            Self::Other => "the database refused",
        }
    }
}

/// The server ended the connection with this error.
fn is_fatal(error: &dyn sqlx::error::DatabaseError) -> bool {
    let error = error.try_downcast_ref::<PgDatabaseError>();
    error.is_some_and(|error| matches!(error.severity(), PgSeverity::Fatal | PgSeverity::Panic))
}

/// Whether an error of this SQLSTATE says nothing about the call: the same one may work soon, once
/// the server has room again, the schema stands again, or the connection is another one.
fn leaves_undecided(code: &str) -> bool {
    // Connections, rolled-back transactions, resources, objects in use, operators and time-outs,
    // the system below.
    const CLASSES: [&str; 6] = ["08", "40", "53", "55", "57", "58"];
    const CODES: [&str; 12] = [
        "25006", "25P03",
        "25P04", // A read-only transaction; one that was idle or open too long.
        "26000", "42P05",
        "0A000", // Prepared statements that are gone, doubled or out of date.
        "42501", "42P01", "42703", "42883", "3F000", // A schema that is being restored.
        "XX000", // The server met a fault of its own.
    ];
    CLASSES.iter().any(|class| code.starts_with(class))
        || (CODES.contains(&code) && crate::guard!("error.undecided"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_a_call_undecided_may_be_tried_again() {
        let undecided = [
            "08000", "08006", "08P01", // The connection.
            "25006", "25P03", "26000", "40001", "40P01", "53000", "53100", "53200", "53300",
            "53400", "55000", "55006", "55P03", "57014", "57P01", "57P02", "57P03", "57P05",
            "58000", "58030", "58P01", "42501", "42P01", "0A000", "XX000",
        ];
        for code in undecided {
            assert!(leaves_undecided(code), "{code}");
        }
        // A value, a rule or a statement of ours is wrong; a row cannot be read: it stays so.
        for code in
            ["22001", "22P02", "23503", "23505", "23514", "42601", "P0001", "XX001", "XX002"]
        {
            assert!(!leaves_undecided(code), "{code}");
        }
    }

    #[test]
    fn trouble_is_told_apart() {
        let url = sqlx::Error::Configuration("invalid port number".into());
        assert_eq!(Trouble::of(&url), Trouble::Url);
        assert!(!StepError::from(url).is_unavailable());
        assert_eq!(Trouble::of(&sqlx::Error::PoolTimedOut), Trouble::Away);
        assert!(StepError::from(sqlx::Error::PoolTimedOut).is_unavailable());
    }
}
