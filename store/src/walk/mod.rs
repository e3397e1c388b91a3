//! The undo walk: a worker claims a rollback, waits until nothing in scope can still be running,
//! then undoes the entries from the highest position down. Each step is one transaction that
//! settles the call just made and decides the next one.
//!
//! What guards it: the claim's fence (every settling write carries it), the attempt row (written
//! before its call, completed by its id), and the session's lock (which orders the walk with
//! Commits, Fails and operators). A process can end at any point: the next claim reads from the
//! rows what had been done.

mod advance;
mod attempt;
mod claim;
mod drain;
mod fair;
mod give_up;
mod key;
mod late;
mod next;
mod prepare;
mod preview;
mod settle;

use undolog_core::{answer::Rules, fn_body::RenderedCall, retry::CallOutcome};
use uuid::Uuid;

pub use advance::{Advance, Record};
pub use claim::{Claim, claim, postpone, renew};
pub use fair::due_of_others;
pub use preview::preview;

/// Who the walk is in the events.
pub const ACTOR: &str = "system:walk";
/// Who closes a dead letter when its call turns out to have succeeded.
pub const LATE_SUCCESS: &str = "system:late_success";

/// What a call came to, as the worker saw it.
#[derive(Debug, Clone)]
pub struct Report {
    /// The attempt that was made.
    pub undo_attempt_id: Uuid,
    /// The entry that it was for.
    pub undo_id: Uuid,
    /// What became of it.
    pub outcome: Outcome,
    /// HTTP status, if there was one.
    pub status: Option<u16>,
    /// What went wrong, for people; without secrets, can hold NUL.
    pub error: Option<String>,
    /// The first bytes of the answer, exactly, without secrets.
    pub response: Vec<u8>,
    /// The answer was longer.
    pub response_truncated: bool,
    /// The answer's Retry-After.
    pub retry_after_ms: Option<u64>,
    /// The endpoint may have carried the call out.
    pub may_have_run: bool,
}

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The call ended in one of the ways that the core knows.
    Ended(CallOutcome),
    /// The worker stops and gave the call up.
    HandedBack,
    /// The process that made this call and nothing else ended before it answered.
    Died,
}

impl Outcome {
    /// The name in the attempt's row.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ended(CallOutcome::Done) => "succeeded",
            Self::Ended(CallOutcome::Retry) => "retryable",
            Self::Ended(CallOutcome::Permanent) => "permanent",
            Self::Ended(CallOutcome::Defer { .. }) => "deferred",
            Self::HandedBack => "handed_back",
            Self::Died => "interrupted",
        }
    }
}

/// Where the next call would be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the worker's own process, beside other calls.
    Worker,
    /// In a process that makes this call and nothing else.
    OwnProcess,
}

/// What the walk does next.
#[derive(Debug)]
pub enum Next {
    /// Make this call and report it.
    Call(Box<PreparedCall>),
    /// The last call of the next entry ended with its process: ask again once the call can be made
    /// in a process of its own.
    NeedsOwnProcess,
    /// There is more to do: ask again.
    Again,
    /// Nothing to do before some time; the claim was given back.
    Waiting,
    /// The slice is over; the claim was given back and a ticket issued.
    HandedOver,
    /// The rollback has ended or halted; the claim was given back.
    Done,
    /// Somebody else holds the rollback now. The report was recorded all the same.
    Lost,
}

/// A call that is recorded and may be made.
#[derive(Debug)]
pub struct PreparedCall {
    /// Its attempt row.
    pub undo_attempt_id: Uuid,
    /// The entry; also the idempotency key.
    pub undo_id: Uuid,
    /// The effect that is undone.
    pub effect_id: Uuid,
    /// The number of the call within the entry's round.
    pub number: i32,
    /// The compensation's name.
    pub compensation: String,
    /// The call, with secrets as references.
    pub call: RenderedCall,
    /// What an answer means.
    pub rules: Rules,
}
