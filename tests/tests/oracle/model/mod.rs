//! An executable reading of DESIGN §5–§8, §12 and §13 for one session: a model and a judge.
//!
//! The oracle has none of the product's structure. It is told each operation with the answer that
//! the real system gave ([`Oracle::apply`]) and is then shown the real rows ([`Oracle::check`]).
//! It says whether both are allowed, and names the rule that is broken when they are not.
//! `README.md` says how to drive it, and lists what the pages leave open.

mod allowed;
mod allowed_report;
mod command;
mod evidence;
mod facts;
mod judge;
mod judge_effect;
mod judge_must;
mod judge_rows;
mod judge_send;
mod judge_session;
mod observed;
mod scope;
#[cfg(test)]
mod tests;
mod verdict;

pub(crate) use allowed::Allowed;
pub(crate) use command::{
    Answer, Call, Command, Config, FailEffect, LetterId, OnDeadLetter, OnRejection, OnToolFailure,
    Outcome, Position, RollbackId, Tier, Tool, UndoId, Value, Verdict, WorkerStep,
};
pub(crate) use observed::{
    EffectRow, EffectState, EntryRow, EntryState, LetterRow, Observed, RollbackKind, RollbackRow,
    RollbackState, SentRow, SessionState,
};
pub(crate) use verdict::{Oracle, Violation};
