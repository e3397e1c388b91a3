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

use crate::{
    error::StepError, rollback::is_late as rollback_is_late, session::LockedSession, tenant::Tenant,
};

/// The refusal that a session's state means. A session that is rolled back for late work only takes
/// calls again afterwards.
async fn refuse_state(tx: &mut Tenant, session: &LockedSession) -> Result<StepError, StepError> {
    let reason = match rollback_is_late(tx, session).await? {
        true => Reason::UndoRunning,
        false => Reason::of_session(session.state()).unwrap_or(Reason::SessionActive),
    };
    Ok(StepError::Refused(Refusal::new(reason).with("session_id", session.id())))
}

/// Only an active session, or one that waits for an approval.
async fn require_live(tx: &mut Tenant, session: &LockedSession) -> Result<(), StepError> {
    match session.state() {
        SessionState::Active | SessionState::AwaitingApproval => Ok(()),
        _ => Err(refuse_state(tx, session).await?),
    }
}
