//! Pause and resume: no compensation, or none of one function, is called meanwhile. Rollbacks
//! begin, drain and wait all the same.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use undolog_core::{
    limits::{RESUME_STEP_MS, RESUME_WINDOW_MS},
    reason::{Reason, Refusal},
    role::Rpc,
};
use uuid::Uuid;

use super::{check_text, require_role};
use crate::{
    error::{Decided, StepError},
    step::{Caller, Step},
    tenant::Tenant,
    ticket,
};

/// Rollbacks that a resume wakes up itself; the reaper finds the others.
const WOKEN_MAX: usize = 500;

/// Pauses compensations of the organisation.
#[derive(Debug, Clone)]
pub struct Pause {
    /// Who decides.
    pub caller: Caller,
    /// Which one; empty: every one.
    pub compensation_fn: String,
    /// A note for people; may be empty.
    pub reason: String,
}

impl Step for Pause {
    type Reply = ();
    const NAME: &'static str = "pause";

    fn org_id(&self) -> Uuid {
        self.caller.org_id
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<()>, StepError> {
        require_role(&self.caller, Rpc::PauseQueue)?;
        check_text("compensation_fn", &self.compensation_fn)?;
        check_text("reason", &self.reason)?;
        if !self.compensation_fn.is_empty() {
            require_registered(tx, &self.compensation_fn).await?;
        }
        sqlx::query(
            "INSERT INTO undolog_pauses AS p (org_id, compensation_fn, paused_at, paused_by, \
             reason) VALUES ($1, $2, clock_timestamp(), $3, $4) \
             ON CONFLICT (org_id, compensation_fn) \
             DO UPDATE SET paused_by = EXCLUDED.paused_by, reason = EXCLUDED.reason",
        )
        .bind(self.caller.org_id)
        .bind(&self.compensation_fn)
        .bind(&self.caller.principal)
        .bind(&self.reason)
        .execute(tx.conn())
        .await?;
        tracing::warn!(
            org.id = %self.caller.org_id, by = self.caller.principal,
            compensation = self.compensation_fn, "compensations are paused"
        );
        Ok(Ok(()))
    }
}

/// Resumes what was paused under the same name.
#[derive(Debug, Clone)]
pub struct Resume {
    /// Who decides.
    pub caller: Caller,
    /// Which one; empty: the pause of every one.
    pub compensation_fn: String,
}

impl Step for Resume {
    /// Was it paused?
    type Reply = bool;
    const NAME: &'static str = "resume";

    fn org_id(&self) -> Uuid {
        self.caller.org_id
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<bool>, StepError> {
        require_role(&self.caller, Rpc::ResumeQueue)?;
        check_text("compensation_fn", &self.compensation_fn)?;
        let done =
            sqlx::query("DELETE FROM undolog_pauses WHERE org_id = $1 AND compensation_fn = $2")
                .bind(self.caller.org_id)
                .bind(&self.compensation_fn)
                .execute(tx.conn())
                .await?;
        let was_paused = done.rows_affected() > 0;
        if was_paused {
            wake(tx).await?;
            tracing::warn!(
                org.id = %self.caller.org_id, by = self.caller.principal,
                compensation = self.compensation_fn, "compensations are resumed"
            );
        }
        Ok(Ok(was_paused))
    }
}

/// A typing mistake would pause nothing and say that it did.
async fn require_registered(tx: &mut Tenant, compensation_fn: &str) -> Result<(), StepError> {
    let org_id = tx.org_id();
    let known: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM undolog_compensation_registry \
         WHERE org_id = $1 AND fn_name = $2)",
    )
    .bind(org_id)
    .bind(compensation_fn)
    .fetch_one(tx.conn())
    .await?;
    if known {
        return Ok(());
    }
    let why = format!("there is no compensation {compensation_fn}");
    Err(Refusal::because(Reason::CompensationNotFound, why).into())
}

#[derive(Debug, FromRow)]
struct Waiting {
    rollback_id: Uuid,
    due_at: DateTime<Utc>,
}

/// Rollbacks that wait and that nobody holds are looked at soon, one after the other. What waits
/// for something else goes on waiting after that look.
pub(super) async fn wake(tx: &mut Tenant) -> Result<(), StepError> {
    let org_id = tx.org_id();
    let waiting: Vec<Waiting> = sqlx::query_as(include_str!("../../sql/operate_wake.sql"))
        .bind(org_id)
        .bind(if crate::guard!("operate.spread") { RESUME_STEP_MS } else { 0.0 })
        .bind(RESUME_WINDOW_MS)
        .fetch_all(tx.conn())
        .await?;
    for one in waiting.iter().take(WOKEN_MAX) {
        ticket::enqueue_rollback(tx, one.rollback_id, one.due_at).await?;
    }
    Ok(())
}
