//! The state machines: one file and one `transition` table each, and the fold over events.
//!
//! A transition answers the state that an event leads to, or `None` when the move is illegal. The
//! database refuses the same moves with a constraint of its own. An event that only adds to the
//! history (a replay, a stale report) leads to the state that was there before.

pub mod approval;
pub mod dead_letter;
pub mod effect;
mod fold;
mod mermaid;
pub mod rollback;
pub mod session;
pub mod undo;

pub use approval::{ApprovalEvent, ApprovalState};
pub use dead_letter::{DeadLetterEvent, DeadLetterReason, DeadLetterState};
pub use effect::{EffectEvent, EffectState, FailedEffect, Outcome, ResultBy, ResultFrom};
pub use fold::{Fold, FoldError, Step, Subject, fold};
pub use mermaid::mermaid;
pub use rollback::{RollbackEvent, RollbackState};
pub use session::{SessionEvent, SessionState};
pub use undo::{SkipReason, UndoEvent, UndoState};

/// A text that is none of an enum's fixed names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no {kind}")]
pub struct UnknownName {
    kind: &'static str,
    text: String,
}

impl UnknownName {
    pub(crate) fn new(kind: &'static str, text: &str) -> Self {
        // The text comes from outside: an error message needs no more than its start.
        let text = text.chars().take(64).collect();
        Self { kind, text }
    }
}
