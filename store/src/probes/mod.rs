//! Probes: a tool may say how to ask whether a call of which nobody reported the outcome happened.
//! Workers ask a few times, with growing pauses; a clear answer settles the effect like an
//! operator's word, anything else leaves it to humans.

mod claim;
mod settle;

pub(crate) use claim::{Probing, probing};
pub use claim::{Question, claim, due_orgs};
pub use settle::{SettleProbe, Settled};

/// Who settles what a probe answered.
pub const ACTOR: &str = "system:probe";
/// How often an unknown call is asked about: over one hour in all.
pub const QUESTIONS_MAX: i32 = 6;
/// The pause before the first question; it doubles with each.
const PAUSE_MS: i64 = 60_000;
/// Questions of one organisation that one run asks.
const QUESTIONS_PER_RUN: i64 = 20;
/// How long the answer to a question may be on its way.
const ANSWER_MS: i64 = 60_000;
