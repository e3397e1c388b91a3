//! The start of a rollback: one transaction with whatever caused it.

use serde_json::json;
use undolog_core::{
    json::show_text,
    state::{RollbackEvent, RollbackState, SessionEvent, SessionState, Subject},
};
use uuid::Uuid;

use super::{RollbackRow, finish, live, make_due, newest, owed};
use crate::{approvals, effects, error::StepError, session::LockedSession, tenant::Tenant};

/// Who takes approvals away when a rollback starts.
const SYSTEM: &str = "system:rollback";
/// The cause of a rollback that undoes late work only.
pub const LATE: &str = "late_report";

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Start<'a> {
    /// The lowest position to undo; 0 for the whole session.
    pub from_position: i32,
    /// Undo everything and end the session.
    pub is_whole: bool,
    /// Committed irreversible effects in scope are accepted.
    pub allow_residue: bool,
    /// Why, as a stable name: `request`, `tool_failed`, `lease`, `rejection`, `idle`,
    /// `late_report`.
    pub cause: &'static str,
    /// Who asked.
    pub actor: &'a str,
    /// For people.
    pub reason: &'a str,
}

impl<'a> Start<'a> {
    /// Everything is undone and the session ends; what cannot be undone is residue.
    pub const fn whole(cause: &'static str, actor: &'a str, reason: &'a str) -> Self {
        Self { from_position: 0, is_whole: true, allow_residue: true, cause, actor, reason }
    }
}

/// Starts a rollback, or widens the live one. Writes everything but the session's own row, which
/// the caller saves. Whether it may start (residue, step order) was decided before.
pub async fn start(
    tx: &mut Tenant,
    session: &mut LockedSession,
    wanted: &Start<'_>,
) -> Result<RollbackRow, StepError> {
    let rollback = match live(tx, session).await? {
        Some(rollback) => widen(tx, session, rollback, wanted).await?,
        None => Some(begin(tx, session, wanted).await?),
    };
    let Some(mut rollback) = rollback else {
        return live(tx, session).await?.ok_or(StepError::Interrupted);
    };
    void_approvals(tx, session, rollback.from_position).await?;
    if is_empty(tx, session, &rollback).await? {
        finish(tx, session, &mut rollback, wanted.actor).await?;
        return Ok(rollback);
    }
    make_due(tx, session, &mut rollback, wanted.actor).await?;
    Ok(rollback)
}

/// Undoes one new entry on top of the stack, and nothing below it: the call was found to have
/// happened after the rollback that covered it had given the session back.
pub(crate) async fn start_late(
    tx: &mut Tenant,
    session: &mut LockedSession,
    position: i32,
    actor: &str,
) -> Result<RollbackRow, StepError> {
    let wanted = Start {
        from_position: position,
        is_whole: false,
        allow_residue: true,
        cause: LATE,
        actor,
        reason: "a call was reported after its rollback had ended",
    };
    start(tx, session, &wanted).await
}

/// There is an open entry at a position: the session's live rollback undoes it, else a whole one
/// that has ended and opens again, else one of its own.
pub(crate) async fn for_entry(
    tx: &mut Tenant,
    session: &mut LockedSession,
    position: i32,
    actor: &str,
) -> Result<(), StepError> {
    if let Some(mut live) = live(tx, session).await?
        && live.from_position <= position
    {
        return make_due(tx, session, &mut live, actor).await;
    }
    if session.state() == SessionState::Compensated
        && let Some(mut ended) = newest(tx, session).await?
        && ended.is_whole()
    {
        return make_due(tx, session, &mut ended, actor).await;
    }
    start_late(tx, session, position, actor).await?;
    Ok(())
}

/// A new rollback, with the session's moves that the design prescribes.
async fn begin(
    tx: &mut Tenant,
    session: &mut LockedSession,
    wanted: &Start<'_>,
) -> Result<RollbackRow, StepError> {
    let detail = json!({"cause": wanted.cause, "from_position": wanted.from_position});
    let returns_to = match session.state() {
        _ if wanted.is_whole => None,
        SessionState::Active | SessionState::AwaitingApproval => Some(SessionState::Active),
        ended => Some(ended),
    };
    let started_seq = session.next_event_seq();
    if wanted.is_whole {
        if session.state() != SessionState::Failed {
            session.apply(SessionEvent::RollbackRequested, wanted.actor, detail.clone())?;
        }
        session.apply(SessionEvent::RollbackStarted, wanted.actor, detail)?;
    } else {
        session.apply(SessionEvent::PartialRollbackStarted, wanted.actor, detail)?;
    }
    let rollback = RollbackRow {
        rollback_id: Uuid::now_v7(),
        session_id: session.id(),
        kind: if wanted.is_whole { "whole" } else { "partial" }.to_owned(),
        state: RollbackState::Draining.as_str().to_owned(),
        from_position: wanted.from_position,
        cause: wanted.cause.to_owned(),
        requested_by: wanted.actor.to_owned(),
        reason: wanted.reason.to_owned(),
        allow_residue: wanted.allow_residue,
        created_at: session.t(),
        due_at: session.now(),
        drained_at: None,
        lease_owner: None,
        lease_expires_at: None,
        fence: 0,
        finished_at: None,
        residue_count: 0,
        unverified_count: 0,
        until_position: None,
        started_seq,
        returns_to: returns_to.map(|state| state.as_str().to_owned()),
        owes_entries: false,
    };
    session.record(
        Subject::Rollback,
        rollback.rollback_id,
        RollbackEvent::Started.as_str(),
        None,
        RollbackState::Draining.as_str(),
        None,
        wanted.actor,
        json!({"cause": wanted.cause, "kind": rollback.kind}),
    );
    insert(tx, &rollback).await?;
    Ok(rollback)
}

/// Widens the live rollback. `None`: it covers what is wanted already.
async fn widen(
    tx: &mut Tenant,
    session: &mut LockedSession,
    mut rollback: RollbackRow,
    wanted: &Start<'_>,
) -> Result<Option<RollbackRow>, StepError> {
    let is_wider =
        wanted.from_position < rollback.from_position || (wanted.is_whole && !rollback.is_whole());
    if !is_wider {
        return Ok(None);
    }
    let detail = json!({"cause": wanted.cause, "from_position": wanted.from_position});
    rollback.apply(session, RollbackEvent::Widened, wanted.actor, detail.clone())?;
    rollback.from_position = rollback.from_position.min(wanted.from_position);
    rollback.allow_residue |= wanted.allow_residue;
    rollback.drained_at = None;
    rollback.finished_at = None;
    if wanted.cause != LATE {
        rollback.cause = wanted.cause.to_owned();
    }
    if wanted.is_whole {
        rollback.kind = "whole".to_owned();
        rollback.returns_to = None;
        session.row.failed_at = session.row.failed_at.or(Some(session.t()));
    }
    owed::pay(tx, session, &mut rollback, wanted.from_position, wanted.actor).await?;
    match session.state() {
        SessionState::Compensating => {
            session.apply(SessionEvent::RollbackWidened, wanted.actor, detail)?;
        }
        SessionState::Halted if wanted.is_whole => {
            session.apply(SessionEvent::RollbackRequested, wanted.actor, detail.clone())?;
            session.apply(SessionEvent::RollbackStarted, wanted.actor, detail)?;
        }
        SessionState::Halted => session.apply(SessionEvent::Reopened, wanted.actor, detail)?,
        other => {
            return Err(StepError::Corrupt(format!(
                "session {} is {other} with a live rollback",
                session.id()
            )));
        }
    }
    super::save(tx, &rollback).await?;
    Ok(Some(rollback))
}

async fn insert(tx: &mut Tenant, rollback: &RollbackRow) -> Result<(), StepError> {
    let org_id = tx.org_id();
    let (reason, reason_raw) = show_text(&rollback.reason);
    sqlx::query(include_str!("../../sql/rollback_insert.sql"))
        .bind(rollback.rollback_id)
        .bind(org_id)
        .bind(rollback.session_id)
        .bind(&rollback.kind)
        .bind(&rollback.state)
        .bind(rollback.from_position)
        .bind(&rollback.cause)
        .bind(&rollback.requested_by)
        .bind(reason)
        .bind(rollback.allow_residue)
        .bind(rollback.created_at)
        .bind(rollback.due_at)
        .bind(reason_raw)
        .bind(rollback.started_seq)
        .bind(&rollback.returns_to)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Pending and ungranted approvals in scope die with the start of a rollback.
async fn void_approvals(
    tx: &mut Tenant,
    session: &mut LockedSession,
    from_position: i32,
) -> Result<(), StepError> {
    let mut cleared = 0;
    for mut approval in approvals::undecided_or_unspent(tx, session).await? {
        let mut effect = effects::require(tx, session, approval.effect_id).await?;
        let is_inside = effect.asked_position.is_none_or(|position| position >= from_position);
        if !is_inside
            || effect.has_live_grant()?
            || effect.approval_request_id != Some(approval.id())
        {
            continue;
        }
        if !approval.is_open_for(&effect)? {
            continue;
        }
        if approvals::void(tx, session, &mut effect, &mut approval, SYSTEM).await? {
            cleared += 1;
        }
    }
    if cleared > 0 {
        session.approvals_changed(-cleared, SYSTEM)?;
    }
    Ok(())
}

/// Nothing to wait for and nothing to undo.
async fn is_empty(
    tx: &mut Tenant,
    session: &LockedSession,
    rollback: &RollbackRow,
) -> Result<bool, StepError> {
    let org_id = tx.org_id();
    let work: bool = sqlx::query_scalar(include_str!("../../sql/rollback_has_work.sql"))
        .bind(session.id())
        .bind(org_id)
        .bind(session.row.started_at)
        .bind(rollback.from_position)
        .bind(session.executed_until())
        .fetch_one(tx.conn())
        .await?;
    Ok(!work)
}
