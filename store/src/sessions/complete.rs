//! Complete: the session ended well, and nothing of it is open.

use serde_json::json;
use undolog_core::{
    reason::{Reason, Refusal},
    state::{SessionEvent, SessionState},
};
use uuid::Uuid;

use super::{refuse_state, require_live};
use crate::{
    error::{Decided, StepError},
    session::LockedSession,
    step::{Caller, Step},
    tenant::Tenant,
};

/// Completes a session.
#[derive(Debug, Clone)]
pub struct Complete {
    /// Who calls.
    pub caller: Caller,
    /// The session.
    pub session_id: Uuid,
    /// Effects without a known outcome do not stand in the way.
    pub accept_unknown: bool,
}

impl Step for Complete {
    type Reply = SessionState;
    const NAME: &'static str = "complete";

    fn org_id(&self) -> Uuid {
        self.caller.org_id
    }

    fn session_id(&self) -> Option<Uuid> {
        Some(self.session_id)
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<SessionState>, StepError> {
        let mut session = LockedSession::require(tx, self.session_id, &self.caller).await?;
        if session.state() == SessionState::Completed {
            return Ok(Ok(SessionState::Completed));
        }
        require_live(tx, &session).await?;
        let org_id = tx.org_id();
        let open: Vec<Uuid> =
            sqlx::query_scalar(include_str!("../../sql/session_open_effects.sql"))
                .bind(session.id())
                .bind(org_id)
                .bind(session.row.started_at)
                .bind(self.accept_unknown)
                .bind(session.executed_until())
                .fetch_all(tx.conn())
                .await?;
        if !open.is_empty() {
            let ids: Vec<String> = open.iter().map(Uuid::to_string).collect();
            return Err(Refusal::new(Reason::EffectsOpen)
                .with("session_id", session.id())
                .with("effect_ids", ids.join(","))
                .into());
        }
        if session.state() != SessionState::Active {
            return Err(refuse_state(tx, &session).await?);
        }
        session.touched_by(&self.caller);
        session.apply(SessionEvent::Completed, &self.caller.principal, json!({}))?;
        session.save(tx).await?;
        Ok(Ok(SessionState::Completed))
    }
}
