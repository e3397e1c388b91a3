//! A tool's probe: a question over HTTP whether a call of which nobody reported the outcome has
//! happened.
//!
//! ```json
//! {"kind":"http","method":"GET","endpoint":"https://pay.example/by-key/{effect_id}",
//!  "headers":{"Authorization":"Bearer {secret:TOKEN}"},"timeout_ms":5000,
//!  "happened":{"status":[200],"result":"/charge"},"did_not_happen":{"status":[404]}}
//! ```
//!
//! Templates are those of `fn_body`, without `{result…}`, `{comp…}` and `{undo_id}`. An answer that
//! is neither of the two cannot tell.

mod parse;

pub use parse::ProbeError;
use uuid::Uuid;

use crate::{
    answer::{Pointer, without_bom},
    fn_body::{FnBody, RenderedCall},
    json::{Node, parse_strict},
    template::{Context, RenderError},
};

/// A parsed and checked probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    call: FnBody,
    happened: Vec<u16>,
    /// Where the result stands in the answer; `None`: the result is null.
    result: Option<Pointer>,
    did_not_happen: Vec<u16>,
}

/// What a probe's answer says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It happened, with this output.
    Happened(Node),
    /// It did not happen.
    DidNotHappen,
    /// Nobody is wiser; why, for people.
    CannotTell(String),
}

impl Answer {
    /// The name in `undolog_effect_log.probe_answer`.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Happened(_) => "happened",
            Self::DidNotHappen => "did_not_happen",
            Self::CannotTell(_) => "cannot_tell",
        }
    }
}

impl Probe {
    /// Fills the question in. Secrets stay markers.
    ///
    /// # Errors
    /// The first placeholder that has no value, or whose value cannot stand where it is put.
    pub fn render(
        &self,
        args: &Node,
        session_id: Uuid,
        effect_id: Uuid,
    ) -> Result<RenderedCall, RenderError> {
        let comp = Node::empty_object();
        let context =
            Context { args, result: None, comp: &comp, session_id, effect_id, undo_id: effect_id };
        let mut call = self.call.render(&context)?;
        // A question needs no idempotency key, and one could be taken for the call's own.
        call.headers.retain(|(name, _)| *name != self.call.idempotency_key_header);
        Ok(call)
    }

    /// The statuses that answer the question, one way or the other.
    #[must_use]
    pub fn statuses(&self) -> Vec<u16> {
        self.happened.iter().chain(&self.did_not_happen).copied().collect()
    }

    /// Reads an answer. A body that was cut short is no body.
    #[must_use]
    pub fn read(&self, status: u16, body: &[u8], is_cut: bool) -> Answer {
        if self.did_not_happen.contains(&status) {
            return Answer::DidNotHappen;
        }
        if !self.happened.contains(&status) {
            return Answer::CannotTell(format!("HTTP {status} is no answer of the probe"));
        }
        let Some(pointer) = &self.result else { return Answer::Happened(Node::Null) };
        if is_cut {
            return Answer::CannotTell("the answer is too long".to_owned());
        }
        let found = parse_strict(without_bom(body)).map_err(|_| "the answer is not JSON");
        let found = found.as_ref().map(|node| pointer.get(node));
        match found {
            Ok(Some(node)) => Answer::Happened(node.clone()),
            Ok(None) => Answer::CannotTell("the answer has no result".to_owned()),
            Err(why) => Answer::CannotTell((*why).to_owned()),
        }
    }
}
