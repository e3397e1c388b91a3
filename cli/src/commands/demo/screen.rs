//! What the demonstration shows while it runs: nothing in JSON, where the end says it all.

use super::{agent::Call, check::Outcome, http::Reply};
use crate::{
    error::CliError,
    out::Out,
    views::{EventView, shorten},
};

/// The screen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Screen {
    out: Out,
}

impl Screen {
    pub(super) fn new(out: Out) -> Self {
        Self { out }
    }

    /// A part begins.
    pub(super) fn title(&self, text: &str) -> Result<(), CliError> {
        self.line(format!("\n{text}"))
    }

    /// Something happens that is no event of the session.
    pub(super) fn note(&self, text: &str) -> Result<(), CliError> {
        self.line(format!("  ** {text}"))
    }

    /// A forward call was made.
    pub(super) fn call(&self, index: usize, call: &Call, reply: &Reply) -> Result<(), CliError> {
        let mark = if reply.is_success() { "done" } else { "FAILED" };
        let answer = shorten(&reply.body.to_string(), 60);
        let (step, tool, status) = (index + 1, call.tool, reply.status);
        self.line(format!("  {step}. {tool:<16} {status} {answer:<32} {mark}"))
    }

    /// The session moved on; `call` says which call is meant, if one is.
    pub(super) fn event(&self, event: &EventView, call: &str) -> Result<(), CliError> {
        let (clock, what, states) = (event.clock(), &event.subject, event.states());
        self.line(format!("  {clock}  {what:<9} {states:<24} {call}").trim_end().to_owned())
    }

    /// What came of it.
    pub(super) fn verdict(&self, outcome: &Outcome) -> Result<(), CliError> {
        if self.out.is_json() {
            return self.out.json(&outcome.report());
        }
        self.title("What reached the service to undo it (the key is the entry's undo_id):")?;
        let rows = outcome.undo_calls.iter().map(|call| {
            let applied = if call.applied { "applied" } else { "repeated: nothing to do" };
            vec![
                call.request.clone(),
                call.key.clone(),
                shorten(&call.body.to_string(), 60),
                applied.to_owned(),
            ]
        });
        self.out.table(&["call", "idempotency-key", "body", "effect"], rows.collect())?;
        self.title("The journal:")?;
        let rows = outcome.events.iter().map(EventView::row).collect();
        self.out.table(&EventView::HEADERS, rows)?;
        self.title("Checked:")?;
        for check in outcome.checks() {
            let mark = if check.ok { "ok" } else { "NOT OK" };
            self.line(format!("  {mark:<6} {}", check.what))?;
        }
        Ok(())
    }

    fn line(&self, text: String) -> Result<(), CliError> {
        if self.out.is_json() { Ok(()) } else { self.out.line(text) }
    }
}
