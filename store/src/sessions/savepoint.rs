//! Savepoint: a position to roll back to.

use serde_json::json;
use undolog_core::state::SessionEvent;
use uuid::Uuid;

use super::require_live;
use crate::{
    error::{Decided, StepError},
    payload::check_text,
    session::LockedSession,
    step::{Caller, Step},
    tenant::Tenant,
};

/// Takes a savepoint: the next position.
#[derive(Debug, Clone)]
pub struct Savepoint {
    /// Who calls.
    pub caller: Caller,
    /// The session.
    pub session_id: Uuid,
    /// Shown in the history.
    pub name: String,
}

/// A taken savepoint.
#[derive(Debug, Clone, Copy)]
pub struct SavepointTaken {
    /// Positions at or above it are undone by a rollback to it.
    pub position: i32,
    /// The first step that nobody has used.
    pub next_step_index: i32,
}

impl Step for Savepoint {
    type Reply = SavepointTaken;
    const NAME: &'static str = "savepoint";

    fn org_id(&self) -> Uuid {
        self.caller.org_id
    }

    fn session_id(&self) -> Option<Uuid> {
        Some(self.session_id)
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<SavepointTaken>, StepError> {
        check_text("name", &self.name)?;
        let mut session = LockedSession::require(tx, self.session_id, &self.caller).await?;
        require_live(tx, &session).await?;
        session.touched_by(&self.caller);
        let taken = SavepointTaken {
            position: session.row.last_position + 1,
            next_step_index: session.row.max_step + 1,
        };
        let detail = json!({"position": taken.position, "name": self.name});
        session.apply(SessionEvent::SavepointTaken, &self.caller.principal, detail)?;
        session.save(tx).await?;
        Ok(Ok(taken))
    }
}
