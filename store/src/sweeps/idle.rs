//! Idle implicit sessions: nobody said that they ended, so the organisation's policy does.

use serde_json::json;
use undolog_core::state::{SessionEvent, SessionState};
use uuid::Uuid;

use super::{
    ROWS_PER_RUN_MAX, Swept, due_orgs, left,
    sessions::{SILENCE_MS, facts},
};
use crate::{
    error::{Decided, StepError},
    pool::Store,
    rollback::{self, Start},
    session::LockedSession,
    step::Step,
    tenant::Tenant,
};

/// Who ends an idle session.
const IDLE: &str = "system:idle";
/// No organisation can set a shorter idle time.
const IDLE_MS_MIN: i64 = 60_000;

/// Ends the idle sessions of all organisations.
///
/// # Errors
/// The database could not be reached.
pub async fn idle(store: &Store) -> Result<Swept, StepError> {
    let mut swept = Swept::default();
    for org_id in due_orgs(store, "idle", IDLE_MS_MIN).await? {
        match of_org(store, org_id).await {
            Ok(of_org) => swept.add(of_org),
            Err(error) => swept.add(left("idle", org_id, &error)),
        }
    }
    Ok(swept)
}

async fn of_org(store: &Store, org_id: Uuid) -> Result<Swept, StepError> {
    let mut tx = Tenant::begin(store, org_id).await?;
    let sessions: Vec<Uuid> = sqlx::query_scalar(include_str!("../../sql/sweep_idle.sql"))
        .bind(org_id)
        .bind(ROWS_PER_RUN_MAX)
        .fetch_all(tx.conn())
        .await?;
    tx.commit().await?;
    let mut swept = Swept::default();
    for session_id in sessions {
        crate::crash_point!("sweep.before_idle");
        match store.run(EndIdle { org_id, session_id }).await {
            Ok(true) => swept.settled += 1,
            Ok(false) => {}
            Err(error) => swept.add(left("idle", org_id, &error)),
        }
    }
    Ok(swept)
}

/// Ends one idle session by its organisation's policy.
#[derive(Debug, Clone, Copy)]
pub struct EndIdle {
    /// The organisation.
    pub org_id: Uuid,
    /// The session.
    pub session_id: Uuid,
}

impl Step for EndIdle {
    type Reply = bool;
    const NAME: &'static str = "end_idle";

    fn org_id(&self) -> Uuid {
        self.org_id
    }

    fn session_id(&self) -> Option<Uuid> {
        Some(self.session_id)
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<bool>, StepError> {
        let Some(mut session) = LockedSession::lock_any(tx, self.session_id).await? else {
            return Ok(Ok(false));
        };
        let (policy, idle_seconds): (String, i32) = sqlx::query_as(
            "SELECT on_idle, idle_session_seconds FROM undolog_orgs WHERE org_id = $1",
        )
        .bind(self.org_id)
        .fetch_one(tx.conn())
        .await?;
        let is_open = session.state() == SessionState::Active
            && session.row.implicit
            && session.row.lease_ms.is_none();
        let idle_ms = i64::from(idle_seconds).saturating_mul(1000).max(SILENCE_MS.min(IDLE_MS_MIN));
        let facts = facts(tx, &session, session.row.last_rpc_at, idle_ms).await?;
        if !is_open || policy == "leave" || !facts.is_over || facts.has_open {
            return Ok(Ok(false));
        }
        let detail = json!({"cause": "idle", "idle_session_seconds": idle_seconds});
        if policy == "rollback" {
            session.apply(SessionEvent::Failed, IDLE, detail)?;
            session.row.failure_reason = Some("it was idle".to_owned());
            let start = Start::whole("idle", IDLE, "it was idle");
            rollback::start(tx, &mut session, &start).await?;
        } else {
            session.apply(SessionEvent::Completed, IDLE, detail)?;
        }
        session.save(tx).await?;
        Ok(Ok(true))
    }
}
