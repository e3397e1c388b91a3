//! Settle: a halted session leaves the lists. It stays halted, and can still be taken up again.

use serde_json::json;
use undolog_core::{
    reason::{Reason, Refusal},
    role::Rpc,
    state::{SessionEvent, SessionState},
};
use uuid::Uuid;

use super::{require_role, require_text};
use crate::{
    error::{Decided, StepError},
    session::{LockedSession, one_row},
    step::{Caller, Step},
    tenant::Tenant,
};

/// Settles a halted session.
#[derive(Debug, Clone)]
pub struct SettleSession {
    /// Who decides.
    pub caller: Caller,
    /// The session.
    pub session_id: Uuid,
    /// Why; required.
    pub note: String,
}

impl Step for SettleSession {
    /// The session's state: still halted.
    type Reply = SessionState;
    const NAME: &'static str = "settle_session";

    fn org_id(&self) -> Uuid {
        self.caller.org_id
    }

    fn session_id(&self) -> Option<Uuid> {
        Some(self.session_id)
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<SessionState>, StepError> {
        require_role(&self.caller, Rpc::SettleSession)?;
        require_text("note", &self.note)?;
        let mut session = LockedSession::require(tx, self.session_id, &self.caller).await?;
        if session.state() != SessionState::Halted && crate::guard!("operate.halted") {
            return Err(Refusal::new(Reason::SessionNotHalted)
                .with("session_id", session.id())
                .with("session_state", session.state())
                .into());
        }
        let actor = self.caller.principal.as_str();
        session.apply(SessionEvent::Settled, actor, json!({"note": self.note}))?;
        keep(tx, &session, actor, &self.note).await?;
        let state = session.state();
        session.save(tx).await?;
        Ok(Ok(state))
    }
}

/// Who settled it and why stand beside the time, which the session's own write sets.
async fn keep(
    tx: &mut Tenant,
    session: &LockedSession,
    actor: &str,
    note: &str,
) -> Result<(), StepError> {
    let done = sqlx::query(
        "UPDATE undolog_sessions SET settled_by = $3, settled_note = $4 \
         WHERE session_id = $1 AND org_id = $2",
    )
    .bind(session.id())
    .bind(session.row.org_id)
    .bind(actor)
    .bind(note)
    .execute(tx.conn())
    .await?;
    one_row(done.rows_affected(), "session")
}
