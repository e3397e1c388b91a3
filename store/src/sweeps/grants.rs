//! Lost grants: a lease that ran out without a report makes its effect unknown.

use undolog_core::state::{EffectEvent, RollbackState};
use uuid::Uuid;

use super::{ACTOR, ROWS_PER_RUN_MAX, Swept, due_orgs, left};
use crate::{
    effects,
    error::{Decided, StepError},
    pool::Store,
    rollback,
    session::LockedSession,
    step::Step,
    tenant::Tenant,
};

/// Grants that one step turns into unknown: it holds the session's lock.
const GRANTS_PER_STEP_MAX: i64 = 500;

/// Turns the lost grants of all organisations into unknown.
///
/// # Errors
/// The database could not be reached.
pub async fn grants(store: &Store) -> Result<Swept, StepError> {
    let mut swept = Swept::default();
    for org_id in due_orgs(store, "grant", 0).await? {
        match of_org(store, org_id).await {
            Ok(of_org) => swept.add(of_org),
            Err(error) => swept.add(left("grants", org_id, &error)),
        }
    }
    Ok(swept)
}

async fn of_org(store: &Store, org_id: Uuid) -> Result<Swept, StepError> {
    let mut tx = Tenant::begin(store, org_id).await?;
    let sessions: Vec<Uuid> = sqlx::query_scalar(include_str!("../../sql/sweep_grants.sql"))
        .bind(org_id)
        .bind(ROWS_PER_RUN_MAX)
        .fetch_all(tx.conn())
        .await?;
    tx.commit().await?;
    let mut swept = Swept::default();
    for session_id in sessions {
        crate::crash_point!("sweep.before_grants");
        match store.run(LoseGrants { org_id, session_id }).await {
            Ok(lost) => swept.settled += lost,
            Err(error) => swept.add(left("grants", org_id, &error)),
        }
    }
    Ok(swept)
}

/// Turns one session's lost grants into unknown, and lets its rollback know when the drain can end.
#[derive(Debug, Clone, Copy)]
pub struct LoseGrants {
    /// The organisation.
    pub org_id: Uuid,
    /// The session.
    pub session_id: Uuid,
}

impl Step for LoseGrants {
    type Reply = u64;
    const NAME: &'static str = "lose_grants";

    fn org_id(&self) -> Uuid {
        self.org_id
    }

    fn session_id(&self) -> Option<Uuid> {
        Some(self.session_id)
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<u64>, StepError> {
        let Some(mut session) = LockedSession::lock_any(tx, self.session_id).await? else {
            return Ok(Ok(0));
        };
        let expired: Vec<Uuid> =
            sqlx::query_scalar(include_str!("../../sql/sweep_session_grants.sql"))
                .bind(self.session_id)
                .bind(self.org_id)
                .bind(session.row.started_at)
                .bind(session.row.via_proxy)
                .bind(session.now())
                .bind(GRANTS_PER_STEP_MAX)
                .bind(session.executed_until())
                .fetch_all(tx.conn())
                .await?;
        for effect_id in &expired {
            let mut effect = effects::require(tx, &session, *effect_id).await?;
            effect.lose(&mut session, EffectEvent::LeaseLost, ACTOR)?;
            effects::save(tx, &effect).await?;
        }
        if !expired.is_empty()
            && let Some(mut live) = rollback::live(tx, &session).await?
            && live.state()? == RollbackState::Draining
        {
            rollback::make_due(tx, &mut session, &mut live, ACTOR).await?;
        }
        session.save(tx).await?;
        Ok(Ok(expired.len() as u64))
    }
}
