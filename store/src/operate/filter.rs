//! Which dead letters a list or a bulk verb is about.

use chrono::{DateTime, Utc};
use undolog_core::{limits::PAGE_MAX, reason::Reason};
use uuid::Uuid;

use crate::{error::StepError, payload::refuse_nul};

/// Which dead letters: named ones, or those that fit every part that is set. Empty parts fit all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadLetterFilter {
    /// Exactly these; the other parts must then be empty.
    pub dead_letter_ids: Vec<Uuid>,
    /// Of this session.
    pub session_id: Option<Uuid>,
    /// About a call of this tool.
    pub tool_name: String,
    /// About this compensation.
    pub compensation_fn: String,
    /// With this reason, for example `EXHAUSTED`.
    pub reason: String,
    /// Made at least so long ago; 0: whenever.
    pub older_than_seconds: u32,
    /// Made by then at the latest. A verb that takes several calls names the time of its first, or
    /// it would take again what was given up again meanwhile.
    pub created_until: Option<DateTime<Utc>>,
    /// Every open one: bulk verbs need it when nothing else narrows.
    pub all: bool,
}

impl DeadLetterFilter {
    /// Exactly these.
    #[must_use]
    pub fn ids(dead_letter_ids: Vec<Uuid>) -> Self {
        Self { dead_letter_ids, ..Self::default() }
    }

    fn narrows(&self) -> bool {
        self.session_id.is_some()
            || self.older_than_seconds > 0
            || [&self.tool_name, &self.compensation_fn, &self.reason]
                .iter()
                .any(|part| !part.is_empty())
    }

    /// The parts fit together.
    pub(super) fn check(&self) -> Result<(), StepError> {
        refuse_nul("filter.tool_name", &self.tool_name)?;
        refuse_nul("filter.compensation_fn", &self.compensation_fn)?;
        refuse_nul("filter.reason", &self.reason)?;
        let has_conditions = self.narrows() || self.all || self.created_until.is_some();
        if !self.dead_letter_ids.is_empty() && has_conditions {
            let why = "the filter takes either ids or conditions";
            return Err(StepError::refuse(Reason::InvalidArgument, why));
        }
        if self.dead_letter_ids.len() > PAGE_MAX as usize {
            let why = format!("the filter names more than {PAGE_MAX} dead letters");
            return Err(StepError::refuse(Reason::LimitExceeded, why));
        }
        Ok(())
    }

    /// Like [`DeadLetterFilter::check`], for verbs that change: everything must be asked for.
    pub(super) fn check_bulk(&self) -> Result<(), StepError> {
        self.check()?;
        let named = !self.dead_letter_ids.is_empty() || self.narrows() || self.all;
        if named || !crate::guard!("operate.all") {
            return Ok(());
        }
        let why = "the filter is empty: say `all` to mean every open dead letter";
        Err(StepError::refuse(Reason::InvalidArgument, why))
    }

    /// Named ones, or those of a named session, are found also when their session was settled.
    pub(super) fn includes_settled(&self) -> bool {
        self.session_id.is_some() || !self.dead_letter_ids.is_empty()
    }

    pub(super) fn ids_param(&self) -> Option<&[Uuid]> {
        (!self.dead_letter_ids.is_empty()).then_some(&*self.dead_letter_ids)
    }
}

/// An empty text fits everything.
pub(super) fn wanted(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}
