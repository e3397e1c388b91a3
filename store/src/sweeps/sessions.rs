//! Lost sessions: an agent that is gone leaves its effects behind, so its session fails and is
//! rolled back.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::FromRow;
use undolog_core::{
    limits::IMPLICIT_SILENCE_SECONDS,
    state::{SessionEvent, SessionState},
};
use uuid::Uuid;

use super::{
    ACTOR, BrakeState, Swept,
    brake::{self, brake},
    due_orgs, left,
};
use crate::{
    error::{Decided, StepError},
    pool::Store,
    rollback::{self, Start},
    session::LockedSession,
    step::Step,
    tenant::Tenant,
};

/// The lease that silence stands for in an implicit session.
pub(super) const SILENCE_MS: i64 = IMPLICIT_SILENCE_SECONDS as i64 * 1000;
/// Lost sessions of one class of leases that one run fails per organisation; they are all counted.
const LOST_MAX: i64 = 5_000;
/// After so many failures a run asks whether an operator has stopped it meanwhile.
const LOOK_EVERY: u64 = 50;

/// Fails the lost sessions of all organisations, as far as their brakes allow.
///
/// # Errors
/// The database could not be reached.
pub async fn sessions(store: &Store) -> Result<Swept, StepError> {
    let mut swept = Swept::default();
    let mut held = 0_u32;
    for org_id in due_orgs(store, "session", 0).await? {
        match of_org(store, org_id).await {
            Ok((of_org, brake)) => {
                swept.add(of_org);
                held += u32::from(brake.holds());
            }
            Err(error) => swept.add(left("sessions", org_id, &error)),
        }
    }
    metrics::gauge!("undolog_brakes_held").set(f64::from(held));
    Ok(swept)
}

/// A session that looks lost, with how many of its class of leases do.
#[derive(Debug, Clone, Copy, FromRow)]
struct Candidate {
    session_id: Uuid,
    class: i64,
    is_kept: bool,
    lost: i64,
}

async fn of_org(store: &Store, org_id: Uuid) -> Result<(Swept, BrakeState), StepError> {
    let mut tx = Tenant::begin(store, org_id).await?;
    // Compiling the plan would take longer than running it.
    sqlx::query("SET LOCAL jit = off").execute(tx.conn()).await?;
    let over: Vec<Candidate> = sqlx::query_as(include_str!("../../sql/sweep_sessions.sql"))
        .bind(org_id)
        .bind(SILENCE_MS)
        .bind(LOST_MAX)
        .fetch_all(tx.conn())
        .await?;
    tx.commit().await?;
    let (kept, candidates): (Vec<_>, Vec<_>) = over.into_iter().partition(|one| one.is_kept);
    // Looking at what a live grant keeps alive writes down until when it does.
    for Candidate { session_id, .. } in kept {
        let look = FailLost { org_id, session_id, may_fail: false };
        if let Err(error) = store.run(look).await {
            left("sessions", org_id, &error);
        }
    }
    let lost: BTreeMap<i64, i64> = candidates.iter().map(|one| (one.class, one.lost)).collect();
    let mut allowance = brake(store, org_id, &lost).await?;
    let mut swept = Swept::default();
    for Candidate { session_id, class, .. } in candidates {
        if !allowance.allows(class) {
            continue;
        }
        if swept.settled > 0
            && swept.settled.is_multiple_of(LOOK_EVERY)
            && brake::is_stopped(store, org_id).await?
        {
            break;
        }
        crate::crash_point!("sweep.before_session");
        match store.run(FailLost { org_id, session_id, may_fail: true }).await {
            Ok(Verdict::Failed) => {
                metrics::counter!("undolog_sessions_lost_total").increment(1);
                allowance.took(class);
                swept.settled += 1;
            }
            Ok(_) => {}
            // It takes nobody's place: the next one is tried.
            Err(error) => swept.add(left("sessions", org_id, &error)),
        }
    }
    let all: i64 = lost.values().sum();
    swept.left += all.unsigned_abs().saturating_sub(swept.settled).saturating_sub(swept.left);
    Ok((swept, allowance.state))
}

/// Judges one session under its lock, and fails it if it is lost and may be failed.
#[derive(Debug, Clone, Copy)]
pub struct FailLost {
    /// The organisation.
    pub org_id: Uuid,
    /// The session.
    pub session_id: Uuid,
    /// False: only say whether it is lost.
    pub may_fail: bool,
}

/// What a session that looked lost is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Not lost (any more).
    Alive,
    /// A live grant keeps it alive until its end.
    HeldByGrant,
    /// Lost, and left as it is.
    Lost,
    /// Lost, failed, and its rollback has begun.
    Failed,
}

#[derive(FromRow)]
pub(super) struct Facts {
    pub(super) is_over: bool,
    pub(super) live_grant_until: Option<DateTime<Utc>>,
    pub(super) has_unknown: bool,
    pub(super) has_open: bool,
}

/// Reads what decides about a session, with the one predicate of every expiry.
pub(super) async fn facts(
    tx: &mut Tenant,
    session: &LockedSession,
    renewed_at: DateTime<Utc>,
    lease_ms: i64,
) -> Result<Facts, StepError> {
    Ok(sqlx::query_as(include_str!("../../sql/sweep_session_facts.sql"))
        .bind(session.id())
        .bind(session.row.org_id)
        .bind(session.row.started_at)
        .bind(renewed_at)
        .bind(lease_ms)
        .bind(session.row.via_proxy)
        .bind(session.now())
        .bind(session.executed_until())
        .fetch_one(tx.conn())
        .await?)
}

impl Step for FailLost {
    type Reply = Verdict;
    const NAME: &'static str = "fail_lost";

    fn org_id(&self) -> Uuid {
        self.org_id
    }

    fn session_id(&self) -> Option<Uuid> {
        Some(self.session_id)
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<Verdict>, StepError> {
        let Some(mut session) = LockedSession::lock_any(tx, self.session_id).await? else {
            return Ok(Ok(Verdict::Alive));
        };
        let verdict = judge(tx, &mut session).await?;
        let verdict = match verdict {
            Verdict::Lost if self.may_fail => {
                fail(tx, &mut session).await?;
                Verdict::Failed
            }
            other => other,
        };
        session.save(tx).await?;
        Ok(Ok(verdict))
    }
}

async fn judge(tx: &mut Tenant, session: &mut LockedSession) -> Result<Verdict, StepError> {
    // A session that awaits an approval is suspended, however long that takes.
    if session.state() != SessionState::Active {
        return Ok(Verdict::Alive);
    }
    let row = &session.row;
    let (renewed_at, lease_ms) = match (row.lease_ms, row.lease_renewed_at) {
        (Some(lease_ms), Some(renewed_at)) => (renewed_at, lease_ms),
        (Some(lease_ms), None) => (row.last_rpc_at, lease_ms),
        (None, _) => (row.last_rpc_at, SILENCE_MS),
    };
    let facts = facts(tx, session, renewed_at, lease_ms).await?;
    let held = session.row.lease_hold_until.is_some_and(|until| until > session.now());
    if !facts.is_over || held {
        return Ok(Verdict::Alive);
    }
    if session.row.lease_ms.is_none() {
        return Ok(judge_implicit(session, &facts));
    }
    match facts.live_grant_until {
        Some(until) => {
            session.row.lease_hold_until = Some(until.max(session.now()));
            Ok(Verdict::HeldByGrant)
        }
        None => Ok(Verdict::Lost),
    }
}

/// An implicit session is lost only with a lost grant of which nobody knows the outcome.
fn judge_implicit(session: &mut LockedSession, facts: &Facts) -> Verdict {
    if session.row.grant_lost_at.is_none() || session.row.on_unknown.as_deref() == Some("hold") {
        return Verdict::Alive;
    }
    if !facts.has_unknown {
        // What was lost has been reported since: the session is an ordinary one again.
        session.row.grant_lost_at = None;
        return Verdict::Alive;
    }
    if facts.live_grant_until.is_some() { Verdict::HeldByGrant } else { Verdict::Lost }
}

async fn fail(tx: &mut Tenant, session: &mut LockedSession) -> Result<(), StepError> {
    let reason = match session.row.lease_ms {
        Some(_) => "its lease ran out",
        None => "a call was lost and nothing was heard for 15 minutes",
    };
    session.apply(SessionEvent::Failed, ACTOR, json!({"cause": "lease"}))?;
    session.row.lease_failed_at = Some(session.now());
    session.row.failure_reason = Some(reason.to_owned());
    let start = Start::whole("lease", ACTOR, reason);
    rollback::start(tx, session, &start).await?;
    Ok(())
}
