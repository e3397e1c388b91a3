//! Heartbeat: the agent is alive, and so are its grants.

use chrono::{DateTime, Duration, Utc};
use serde_json::json;
use undolog_core::{
    limits,
    reason::{Reason, Refusal},
    state::{EffectEvent, EffectState, SessionState},
};
use uuid::Uuid;

use crate::{
    effects::{self, EffectRow},
    error::{Decided, StepError},
    lanes::Lane,
    rollback, service,
    session::LockedSession,
    step::{Caller, Step},
    tenant::Tenant,
    upstream,
};

/// Renews a session and its grants.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    /// Who calls.
    pub caller: Caller,
    /// The session.
    pub session_id: Uuid,
    /// The grants that the caller holds: effect and attempt.
    pub grants: Vec<(Uuid, u32)>,
}

/// What a heartbeat answers.
#[derive(Debug, Clone)]
pub struct HeartbeatReply {
    /// The session's state.
    pub state: SessionState,
    /// The session takes no more work.
    pub stop: bool,
    /// When the session is lost unless one of its RPCs comes.
    pub lease_expires_at: Option<DateTime<Utc>>,
    /// The grants, in the order of the request.
    pub grants: Vec<GrantStatus>,
}

/// One grant after the heartbeat.
#[derive(Debug, Clone)]
pub struct GrantStatus {
    /// The effect.
    pub effect_id: Uuid,
    /// The newest attempt.
    pub attempt: u32,
    /// The effect's state.
    pub state: EffectState,
    /// When the grant is lost.
    pub lease_expires_at: Option<DateTime<Utc>>,
    /// This grant is over, or the session is: stop the tool.
    pub stop: bool,
}

impl Step for Heartbeat {
    type Reply = HeartbeatReply;
    const NAME: &'static str = "heartbeat";
    const LANE: Lane = Lane::Report;

    fn org_id(&self) -> Uuid {
        self.caller.org_id
    }

    fn session_id(&self) -> Option<Uuid> {
        Some(self.session_id)
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<HeartbeatReply>, StepError> {
        if self.grants.len() > limits::PAGE_MAX as usize {
            return Err(Refusal::because(Reason::LimitExceeded, "too many grants")
                .with("limit", limits::PAGE_MAX)
                .into());
        }
        let mut session = LockedSession::require(tx, self.session_id, &self.caller).await?;
        session.touched_by(&self.caller);
        if self.grants.is_empty() {
            upstream::check_executor(tx, &self.caller, None).await?;
        }
        let stop = !session.state().is_live() && !rollback::is_late(tx, &session).await?;
        let mut grants = Vec::with_capacity(self.grants.len());
        for &(effect_id, attempt) in &self.grants {
            grants.push(self.renew(tx, &mut session, effect_id, attempt, stop).await?);
        }
        let reply = HeartbeatReply {
            state: session.state(),
            stop,
            lease_expires_at: session.lease_end(),
            grants,
        };
        session.save(tx).await?;
        Ok(Ok(reply))
    }
}

impl Heartbeat {
    async fn renew(
        &self,
        tx: &mut Tenant,
        session: &mut LockedSession,
        effect_id: Uuid,
        attempt: u32,
        stop: bool,
    ) -> Result<GrantStatus, StepError> {
        let mut effect = effects::require(tx, session, effect_id).await?;
        upstream::check_executor(tx, &self.caller, Some(&effect)).await?;
        let newest = u32::try_from(effect.attempt).unwrap_or_default();
        let is_current = attempt == 0 || attempt == newest;
        let ends_at = execution_ends_at(tx, session, &effect).await?;
        let has_time = ends_at.is_none_or(|end| end > session.now());
        if is_current && has_time {
            let is_live = effect.has_live_grant()?;
            let resumes = effect.state()? == EffectState::Unknown
                && effect.lease_ms.is_some()
                && session.state() == SessionState::Active;
            if resumes {
                let actor = &self.caller.principal;
                effect.apply(session, EffectEvent::GrantResumed, actor, json!({}))?;
                effect.lost_at = None;
            }
            if is_live || resumes {
                extend(&mut effect, session.lease_from(), ends_at);
                effects::save(tx, &effect).await?;
            }
        }
        let is_live = is_current && effect.has_live_grant()?;
        Ok(GrantStatus {
            effect_id,
            attempt: newest,
            state: effect.state()?,
            lease_expires_at: effect
                .lease_renewed_at
                .zip(effect.lease_ms)
                .filter(|_| is_live)
                .map(|(at, lease_ms)| at + Duration::milliseconds(lease_ms)),
            // What has no time left is over at its next sweep.
            stop: stop || !is_live || !has_time,
        })
    }
}

/// Heartbeats stretch a grant up to the tool's longest execution, not beyond. After an outage of
/// ours, or when the clock was put forward, that counts from our return, as leases do.
async fn execution_ends_at(
    tx: &mut Tenant,
    session: &LockedSession,
    effect: &EffectRow,
) -> Result<Option<DateTime<Utc>>, StepError> {
    let Some((end, granted_at)) = effect.execution_ends_at.zip(effect.granted_at) else {
        return Ok(effect.execution_ends_at);
    };
    if end > session.now() {
        return Ok(Some(end));
    }
    let since = service::running_since(tx, session).await?.unwrap_or_else(|| session.now());
    Ok(Some(end.max(since + (end - granted_at))))
}

fn extend(effect: &mut EffectRow, now: DateTime<Utc>, ends_at: Option<DateTime<Utc>>) {
    let Some(lease_ms) = effect.lease_ms else { return };
    let left_ms = ends_at.map_or(i64::MAX, |end| (end - now).num_milliseconds());
    effect.lease_renewed_at = Some(now);
    effect.lease_ms = Some(lease_ms.min(left_ms.max(0)));
}
