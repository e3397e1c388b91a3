//! Fail a session, with or without its rollback.

use serde_json::json;
use undolog_core::state::{SessionEvent, SessionState};
use uuid::Uuid;

use super::refuse_state;
use crate::{
    error::{Decided, StepError},
    payload::refuse_long,
    rollback::{self, Start},
    session::LockedSession,
    step::{Caller, Step},
    tenant::Tenant,
};

/// Fails a session.
#[derive(Debug, Clone)]
pub struct FailSession {
    /// Who calls.
    pub caller: Caller,
    /// The session.
    pub session_id: Uuid,
    /// For people.
    pub reason: String,
    /// Roll back as well.
    pub rollback: bool,
}

/// The session after it failed.
#[derive(Debug, Clone)]
pub struct SessionFailed {
    /// Its state.
    pub state: SessionState,
    /// Its live rollback.
    pub rollback_id: Option<Uuid>,
}

impl Step for FailSession {
    type Reply = SessionFailed;
    const NAME: &'static str = "fail_session";

    fn org_id(&self) -> Uuid {
        self.caller.org_id
    }

    fn session_id(&self) -> Option<Uuid> {
        Some(self.session_id)
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<SessionFailed>, StepError> {
        refuse_long("reason", &self.reason)?;
        let actor = self.caller.principal.as_str();
        let mut session = LockedSession::require(tx, self.session_id, &self.caller).await?;
        session.touched_by(&self.caller);
        match session.state() {
            SessionState::Active | SessionState::AwaitingApproval => {
                session.apply(SessionEvent::Failed, actor, json!({"cause": "request"}))?;
                session.fail_because(&self.reason);
            }
            // A partial rollback would give the session back.
            SessionState::Compensating => self.widen(tx, &mut session).await?,
            // The same request again: the session has failed already.
            SessionState::Failed | SessionState::Compensated => {}
            SessionState::Completed | SessionState::Halted => {
                return Err(refuse_state(tx, &session).await?);
            }
        }
        let rollback_id = if self.rollback && session.state() == SessionState::Failed {
            Some(rollback::start(tx, &mut session, &self.whole()).await?.rollback_id)
        } else {
            rollback::live(tx, &session).await?.map(|rollback| rollback.rollback_id)
        };
        let state = session.state();
        session.save(tx).await?;
        Ok(Ok(SessionFailed { state, rollback_id }))
    }
}

impl FailSession {
    fn whole(&self) -> Start<'_> {
        Start::whole("request", &self.caller.principal, &self.reason)
    }

    /// The session fails while a partial rollback runs: that one becomes the whole, or gives back
    /// a failed session.
    async fn widen(&self, tx: &mut Tenant, session: &mut LockedSession) -> Result<(), StepError> {
        let Some(mut partial) = rollback::live_partial(tx, session).await? else { return Ok(()) };
        session.fail_because(&self.reason);
        if self.rollback {
            rollback::start(tx, session, &self.whole()).await?;
            return Ok(());
        }
        partial.returns_to = Some(SessionState::Failed.as_str().to_owned());
        rollback::save(tx, &partial).await
    }
}
