//! A session's life: begin, heartbeat, complete, fail, savepoint, rollback.

mod begin;
mod complete;
mod fail;
mod heartbeat;
mod rollback;
mod savepoint;

pub use begin::{Begin, Begun};
pub use complete::Complete;
pub use fail::{FailSession, SessionFailed};
pub use heartbeat::{GrantStatus, Heartbeat, HeartbeatReply};
pub use rollback::{PlannedItem, Preview, Rollback, RollbackReply, RollbackScope};
pub use savepoint::{Savepoint, SavepointTaken};
use undolog_core::{
    reason::{Reason, Refusal},
    state::SessionState,
};

use crate::{error::StepError, session::LockedSession};

/// The refusal that a session's state means.
fn refuse_state(session: &LockedSession) -> StepError {
    let reason = Reason::of_session(session.state()).unwrap_or(Reason::SessionActive);
    StepError::Refused(Refusal::new(reason).with("session_id", session.id()))
}

/// Only an active session, or one that waits for an approval.
fn require_live(session: &LockedSession) -> Result<(), StepError> {
    match session.state() {
        SessionState::Active | SessionState::AwaitingApproval => Ok(()),
        _ => Err(refuse_state(session)),
    }
}
