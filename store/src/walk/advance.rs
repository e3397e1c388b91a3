//! One step of the walk: settles the call just made and decides the next thing, in one transaction.

use chrono::{DateTime, Duration, Utc};
use undolog_core::state::RollbackState;
use uuid::Uuid;

use super::{
    Claim, Next, Place, Report,
    claim::lease_ms,
    drain::drain,
    late,
    next::{Decision, next},
    settle::settle,
};
use crate::{
    backlog::WaitsFor,
    error::{Decided, StepError},
    rollback::{COLUMNS, RollbackRow},
    session::{LockedSession, one_row},
    step::Step,
    tenant::Tenant,
    ticket,
};

/// The holder of a claim reports its last call, if it made one, and asks for the next thing.
/// Sending the same report again is harmless: what was committed is found.
#[derive(Debug, Clone)]
pub struct Advance {
    /// The claim.
    pub claim: Claim,
    /// The call just made.
    pub report: Option<Report>,
    /// Where the next call would be made.
    pub place: Place,
    /// False: settle, then hand the rollback over.
    pub may_go_on: bool,
    /// A random number from 0 to 50: jitter comes from the caller, which has a random source.
    pub jitter_percent: u64,
}

impl Step for Advance {
    type Reply = Next;
    const NAME: &'static str = "advance";

    fn org_id(&self) -> Uuid {
        self.claim.org_id
    }

    fn session_id(&self) -> Option<Uuid> {
        Some(self.claim.session_id)
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<Next>, StepError> {
        let claim = &self.claim;
        let Some(mut session) = LockedSession::lock_any(tx, claim.session_id).await? else {
            return Ok(Ok(Next::Lost));
        };
        let Some(mut rollback) = load(tx, claim).await? else { return Ok(Ok(Next::Lost)) };
        if rollback.fence != claim.fence && crate::guard!("walk.fence") {
            if let Some(report) = &self.report {
                late::record(tx, &mut session, report).await?;
            }
            session.save(tx).await?;
            return Ok(Ok(Next::Lost));
        }
        if let Some(report) = &self.report {
            settle(tx, &mut session, &mut rollback, self, report).await?;
        }
        let decision = self.decide(tx, &mut session, &mut rollback).await?;
        let t = session.now();
        hold(tx, claim, &decision, &rollback, t).await?;
        crate::crash_point!("worker.before_settle_commit");
        session.save(tx).await?;
        if let Some(due_at) = released_until(&decision, t) {
            ticket::enqueue_rollback(tx, claim.rollback_id, due_at).await?;
        }
        Ok(Ok(match decision {
            Decision::Call(call) => Next::Call(call),
            Decision::NeedsOwnProcess => Next::NeedsOwnProcess,
            Decision::Again => Next::Again,
            Decision::Wait(..) => Next::Waiting,
            Decision::HandOver => Next::HandedOver,
            Decision::Finished => Next::Done,
        }))
    }
}

/// Records a report and nothing else: for a holder whose step cannot be taken.
#[derive(Debug, Clone)]
pub struct Record {
    /// The claim under which the call was made.
    pub claim: Claim,
    /// The call.
    pub report: Report,
}

impl Step for Record {
    type Reply = ();
    const NAME: &'static str = "record";

    fn org_id(&self) -> Uuid {
        self.claim.org_id
    }

    fn session_id(&self) -> Option<Uuid> {
        Some(self.claim.session_id)
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<()>, StepError> {
        let Some(mut session) = LockedSession::lock_any(tx, self.claim.session_id).await? else {
            return Ok(Ok(()));
        };
        late::record(tx, &mut session, &self.report).await?;
        session.save(tx).await?;
        Ok(Ok(()))
    }
}

impl Advance {
    async fn decide(
        &self,
        tx: &mut Tenant,
        session: &mut LockedSession,
        rollback: &mut RollbackRow,
    ) -> Result<Decision, StepError> {
        let state = rollback.state()?;
        if !matches!(state, RollbackState::Draining | RollbackState::Walking) {
            return Ok(Decision::Finished);
        }
        if !self.may_go_on {
            return Ok(Decision::HandOver);
        }
        if state == RollbackState::Draining
            && let Some(until) = drain(tx, session, rollback).await?
        {
            return Ok(Decision::Wait(until, WaitsFor::Calls));
        }
        next(tx, session, rollback, self).await
    }
}

async fn load(tx: &mut Tenant, claim: &Claim) -> Result<Option<RollbackRow>, StepError> {
    Ok(sqlx::query_as(&format!(
        "SELECT {COLUMNS} FROM undolog_rollbacks WHERE rollback_id = $1 AND org_id = $2 \
         FOR NO KEY UPDATE"
    ))
    .bind(claim.rollback_id)
    .bind(claim.org_id)
    .fetch_optional(tx.conn())
    .await?)
}

/// When the rollback is due again, if the claim is given back with work left.
fn released_until(decision: &Decision, t: DateTime<Utc>) -> Option<DateTime<Utc>> {
    match decision {
        Decision::Wait(at, _) => Some(*at),
        Decision::HandOver => Some(t),
        Decision::Call(_) | Decision::NeedsOwnProcess | Decision::Again | Decision::Finished => {
            None
        }
    }
}

/// What the rollback waits for until then.
fn waits_for(decision: &Decision) -> Option<&'static str> {
    match decision {
        Decision::Wait(_, waits_for) => Some(waits_for.as_str()),
        _ => None,
    }
}

/// Keeps the lease while there is work, else gives the claim back. Written with the fence, so that
/// a step of an earlier holder writes nothing at all.
async fn hold(
    tx: &mut Tenant,
    claim: &Claim,
    decision: &Decision,
    rollback: &RollbackRow,
    t: DateTime<Utc>,
) -> Result<(), StepError> {
    let keeps = matches!(decision, Decision::Call(_) | Decision::NeedsOwnProcess | Decision::Again);
    let done = sqlx::query(include_str!("../../sql/walk_hold.sql"))
        .bind(claim.rollback_id)
        .bind(claim.org_id)
        .bind(claim.fence)
        .bind(keeps.then_some(&claim.worker))
        .bind(keeps.then(|| t + Duration::milliseconds(lease_ms())))
        .bind(released_until(decision, t).unwrap_or(rollback.due_at))
        .bind(!crate::guard!("walk.fence"))
        .bind(waits_for(decision))
        .execute(tx.conn())
        .await?;
    one_row(done.rows_affected(), "held rollback")
}
