//! What an endpoint's answer means, by its status and, where a registration says so, by its body.

mod condition;

use serde::{Deserialize, Serialize};

use crate::json::{Node, parse_lossless};
use crate::names::named_enum;
use crate::retry::{CallOutcome, by_status};

pub(crate) use condition::statuses;
pub use condition::{Condition, ConditionError, Pointer};

named_enum! {
    /// What a success status means whose body does not meet `done_when`.
    pub enum NotDone {
        /// A failed try, like a 5xx: tried again, at most `max_retries` times.
        Retry => "retry",
        /// A dead letter at once, like a 4xx.
        DeadLetter => "dead_letter",
    }
}

/// What is heard of an endpoint.
#[derive(Debug, Clone, Copy)]
pub struct Heard<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The answer's Retry-After.
    pub retry_after_ms: Option<u64>,
    /// The whole body, as it was read.
    pub body: &'a [u8],
}

/// What answers mean to one registration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// Statuses besides 2xx that mean that it is done, whatever the body says.
    pub done_statuses: Vec<u16>,
    /// Conditions of which one must hold on the statuses that they are about.
    pub done_when: Vec<Condition>,
    /// What a success status means on which no condition holds.
    #[serde(with = "named")]
    pub not_done: NotDone,
    /// Statuses that mean that another try may work.
    pub retry_statuses: Vec<u16>,
    /// An earlier call with the same key may still be under way: then 409 and 423 can mean that
    /// the endpoint has not ended it yet.
    pub key_may_be_in_use: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            done_statuses: Vec::new(),
            done_when: Vec::new(),
            not_done: NotDone::Retry,
            retry_statuses: Vec::new(),
            key_may_be_in_use: false,
        }
    }
}

impl Rules {
    /// What an answer means.
    #[must_use]
    pub fn judge(&self, heard: &Heard<'_>) -> CallOutcome {
        let status = heard.status;
        if self.done_statuses.contains(&status) {
            return CallOutcome::Done;
        }
        let is_success = (200..300).contains(&status);
        let mut about = self.done_when.iter().filter(|condition| condition.is_about(status));
        if let Some(first) = about.next() {
            let body = body_json(heard.body);
            if std::iter::once(first).chain(about).any(|condition| condition.holds(body.as_ref())) {
                return CallOutcome::Done;
            }
            if is_success {
                return self.not_done();
            }
        }
        if self.retry_statuses.contains(&status) {
            return match (status, heard.retry_after_ms) {
                // It says when to come back: that is waited for and not counted.
                (429, _) | (503, Some(_)) => by_status(status, heard.retry_after_ms),
                _ => CallOutcome::Retry,
            };
        }
        if is_success {
            return CallOutcome::Done;
        }
        if self.key_may_be_in_use && matches!(status, 409 | 423) {
            return CallOutcome::Retry;
        }
        by_status(status, heard.retry_after_ms)
    }

    /// Whether a success status was not believed because of its body.
    #[must_use]
    pub fn doubts(&self, status: u16) -> bool {
        (200..300).contains(&status)
            && !self.done_statuses.contains(&status)
            && self.done_when.iter().any(|condition| condition.is_about(status))
    }

    const fn not_done(&self) -> CallOutcome {
        match self.not_done {
            NotDone::Retry => CallOutcome::Retry,
            NotDone::DeadLetter => CallOutcome::Permanent,
        }
    }
}

/// A body without the mark that some servers put before UTF-8 text.
#[must_use]
pub fn without_bom(body: &[u8]) -> &[u8] {
    body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body)
}

/// A body as JSON, if it is that.
#[must_use]
pub fn body_json(body: &[u8]) -> Option<Node> {
    parse_lossless(without_bom(body)).ok()
}

/// A value of a fixed name, for a call that a worker hands to another process.
mod named {
    use std::{fmt::Display, str::FromStr};

    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<T: Display, S: Serializer>(value: &T, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(value)
    }

    pub(super) fn deserialize<'de, T, D>(d: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}
