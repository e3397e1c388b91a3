//! The oracle's face: apply a command, check the rows.

use std::fmt;

use super::allowed::{self, Allowed};
use super::command::{Answer, Command, Config};
use super::facts::Model;
use super::observed::Observed;
use super::{evidence, judge};

/// A rule of the design that is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// The rule and its section.
    pub(crate) rule: &'static str,
    /// What broke it.
    pub(crate) text: String,
}

impl Violation {
    pub(crate) fn new(rule: &'static str, text: impl Into<String>) -> Violation {
        Violation { rule, text: text.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.rule, self.text)
    }
}

impl std::error::Error for Violation {}

/// The model and judge of one session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Oracle {
    pub(crate) model: Model,
    /// The rows that were last found right.
    pub(crate) seen: Observed,
    pub(crate) last: Option<Command>,
}

impl Oracle {
    /// A fresh, active session with these policies.
    pub(crate) fn new(config: Config) -> Oracle {
        Oracle { model: Model { config, ..Model::default() }, ..Oracle::default() }
    }

    /// The answers that the pages allow to this command now.
    pub(crate) fn allowed(&self, command: &Command) -> Vec<Allowed> {
        allowed::allowed(&self.model, &self.seen, command)
    }

    /// Records a command and what the caller heard; judges the answer.
    pub(crate) fn apply(&mut self, command: Command, answer: &Answer) -> Result<(), Violation> {
        let allowed = self.allowed(&command);
        if !allowed.iter().any(|a| a.matches(answer)) {
            return Err(allowed::refuse(&self.model, &self.seen, &command, answer, &allowed));
        }
        evidence::record(&mut self.model, &self.seen, &command, answer);
        self.last = Some(command);
        Ok(())
    }

    /// Judges the rows after the last command. `quiescent`: nothing is due any more, so all that
    /// must be undone has been.
    pub(crate) fn check(&mut self, observed: &Observed, quiescent: bool) -> Result<(), Violation> {
        judge::check(&mut self.model, &self.seen, observed, self.last.as_ref(), quiescent)?;
        self.seen = observed.clone();
        Ok(())
    }
}
