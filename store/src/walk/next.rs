//! The next thing that the walk does: it takes the open entry with the highest position in scope,
//! settles what needs no call, and prepares the one that does.

use chrono::{DateTime, Duration, Utc};
use serde_json::json;
use sqlx::FromRow;
use undolog_core::state::{
    DeadLetterReason, EffectEvent, EffectState, RollbackState, UndoEvent, UndoState,
};
use uuid::Uuid;

use super::{
    ACTOR, Advance, Place, PreparedCall, attempt,
    give_up::give_up,
    key::{self, Key},
    prepare::{Prepared, Ready, prepare},
    settle,
};
use crate::{
    backlog::WaitsFor,
    effects::{self, EffectRow},
    error::StepError,
    gate::{self, Route, Wish},
    rollback::{self, RollbackRow},
    session::LockedSession,
    tenant::Tenant,
    undo::{self, UndoRow},
};

/// Entries that one transaction settles without a call: it holds the session's lock.
const ENTRIES_PER_STEP_MAX: u32 = 100;

/// How long the walk sleeps while a probe is asked; a clear answer makes it due earlier.
const PROBE_WAIT: Duration = Duration::seconds(15);

/// By so much two readings of one clock may differ.
const CLOCK_SLACK: Duration = Duration::seconds(1);

/// What the step decided.
#[derive(Debug)]
pub(super) enum Decision {
    Call(Box<PreparedCall>),
    NeedsOwnProcess,
    Again,
    Wait(DateTime<Utc>, WaitsFor),
    HandOver,
    Finished,
}

/// The top entry with what its calls came to.
#[derive(Debug, FromRow)]
pub(super) struct Top {
    #[sqlx(flatten)]
    pub(super) entry: UndoRow,
    has_success: bool,
    /// A call with its key has ended, and the endpoint may have carried it out.
    pub(super) may_have_run: bool,
    /// What its last call sent; `None`: nothing yet, or nobody knows.
    pub(super) sent_digest: Option<Vec<u8>>,
    pub(super) sent_with_result: Option<bool>,
    last_attempt_id: Option<Uuid>,
    last_outcome: Option<String>,
    last_fence: Option<i64>,
    last_number: Option<i32>,
    last_finished_at: Option<DateTime<Utc>>,
    is_blocked: bool,
}

impl Top {
    /// The last call has no outcome: of an earlier holder, or one that was never made.
    fn open_attempt(&self) -> Option<Uuid> {
        self.last_attempt_id.filter(|_| self.last_outcome.is_none())
    }

    /// A next try that lies ahead because the clock stepped back since the last one ended comes as
    /// late after now as it was meant to come after that. `true`: it was moved.
    fn follow_clock(&mut self, now: DateTime<Utc>) -> bool {
        let ahead = self.last_finished_at.map(|at| at - now).filter(|by| *by > CLOCK_SLACK);
        let (Some(ahead), Some(at)) = (ahead, self.entry.next_try_at) else { return false };
        if at <= now {
            return false;
        }
        self.entry.next_try_at = Some((at - ahead).max(now));
        true
    }

    /// Its last call that was made to an end, or to the end of a process, ended a process.
    fn is_suspect(&self) -> bool {
        self.entry.interruptions > 0 || self.last_outcome.as_deref() == Some("interrupted")
    }
}

/// Decides the next thing of a walking rollback.
pub(super) async fn next(
    tx: &mut Tenant,
    session: &mut LockedSession,
    rollback: &mut RollbackRow,
    step: &Advance,
) -> Result<Decision, StepError> {
    for _ in 0..ENTRIES_PER_STEP_MAX {
        if rollback.state()? != RollbackState::Walking {
            return Ok(Decision::Finished);
        }
        let Some(top) = top(tx, session, rollback).await? else {
            rollback::finish(tx, session, rollback, ACTOR).await?;
            return Ok(Decision::Finished);
        };
        // The order is the promise: what lies below an entry that was given up waits for a human,
        // also when something else has made the rollback due.
        if top.is_blocked && crate::guard!("walk.halt") {
            rollback::finish(tx, session, rollback, ACTOR).await?;
            return Ok(Decision::Finished);
        }
        if let Some(decision) = one(tx, session, rollback, step, top).await? {
            return Ok(decision);
        }
    }
    Ok(Decision::Again)
}

/// The open entry with the highest position in scope. `undo_top` only says where to begin to look:
/// that nothing is left is never taken from it.
async fn top(
    tx: &mut Tenant,
    session: &mut LockedSession,
    rollback: &RollbackRow,
) -> Result<Option<Top>, StepError> {
    let mut found = top_below(tx, session, rollback, session.row.undo_top).await?;
    if found.is_none() && session.row.undo_top.is_some() {
        found = top_below(tx, session, rollback, None).await?;
    }
    let next = found.as_ref().map_or(rollback.from_position - 1, |top| top.entry.stack_position);
    session.row.undo_top = Some(next);
    Ok(found)
}

async fn top_below(
    tx: &mut Tenant,
    session: &LockedSession,
    rollback: &RollbackRow,
    undo_top: Option<i32>,
) -> Result<Option<Top>, StepError> {
    let org_id = tx.org_id();
    Ok(sqlx::query_as(include_str!("../../sql/walk_next.sql"))
        .bind(session.id())
        .bind(org_id)
        .bind(rollback.from_position)
        .bind(undo_top.unwrap_or(i32::MAX))
        .bind(session.row.on_dead_letter != "continue")
        .fetch_optional(tx.conn())
        .await?)
}

/// Works on one entry. `None`: it is settled, the next one may come.
async fn one(
    tx: &mut Tenant,
    session: &mut LockedSession,
    rollback: &mut RollbackRow,
    step: &Advance,
    mut top: Top,
) -> Result<Option<Decision>, StepError> {
    let mut effect = effects::require(tx, session, top.entry.effect_id).await?;
    if top.has_success && crate::guard!("walk.success_check") {
        let event = match top.entry.state()? {
            UndoState::Running => UndoEvent::Compensated,
            _ => UndoEvent::LateSuccess,
        };
        settle::compensated(tx, session, &mut top.entry, &mut effect, event).await?;
        return Ok(None);
    }
    let resumed = top.open_attempt().filter(|_| top.last_fence == Some(step.claim.fence));
    if let (Some(open), None) = (top.open_attempt(), resumed) {
        interrupted(tx, session, step, &mut top, open).await?;
        return Ok(None);
    }
    // Only a failure that was reported late can have counted past the last retry.
    if i32::from(top.entry.retry_count) > top.entry.max_retries {
        top.entry.retry_count = i16::try_from(top.entry.max_retries).unwrap_or(i16::MAX);
        let detail = top.entry.last_error.clone().unwrap_or_default();
        let reason = DeadLetterReason::Exhausted;
        give_up(tx, session, rollback, &mut top.entry, &mut effect, reason, &detail).await?;
        return Ok(None);
    }
    if top.follow_clock(session.now()) {
        undo::save(tx, &top.entry).await?;
    }
    if let Some(at) = top.entry.next_try_at.filter(|at| *at > session.now())
        && crate::guard!("walk.backoff")
    {
        return Ok(Some(Decision::Wait(at, WaitsFor::Retry)));
    }
    if is_granted(&effect, &top.entry)? {
        // Cannot happen after the drain; were it to, nothing may be undone under a running call.
        tracing::error!(effect.id = %effect.effect_id, "a call in scope of a walk holds a grant");
        let soon = session.now() + Duration::seconds(1);
        return Ok(Some(Decision::Wait(soon, WaitsFor::Calls)));
    }
    match prepare(tx, session, &top.entry, &effect).await? {
        Prepared::Skip(reason) if top.entry.state()? == UndoState::Pending => {
            top.entry.skip(session, reason, ACTOR)?;
            undo::save(tx, &top.entry).await?;
            Ok(None)
        }
        Prepared::Wait => Ok(Some(Decision::Wait(session.now() + PROBE_WAIT, WaitsFor::Outcome))),
        Prepared::Skip(_) => {
            // A call of it has been made, so nobody can say that it needs none; only a changed
            // registration leads here.
            let why = "the registration changed between two calls and needs a missing result";
            let reason = DeadLetterReason::MissingResult;
            give_up(tx, session, rollback, &mut top.entry, &mut effect, reason, why).await?;
            Ok(None)
        }
        Prepared::Dead(reason, why) => {
            give_up(tx, session, rollback, &mut top.entry, &mut effect, reason, &why).await?;
            Ok(None)
        }
        Prepared::Call(ready) => {
            send(tx, session, rollback, step, top, effect, (*ready, resumed)).await
        }
    }
}

/// Makes the call, unless something keeps it from being made now, or it is not what was sent under
/// its key.
async fn send(
    tx: &mut Tenant,
    session: &mut LockedSession,
    rollback: &mut RollbackRow,
    step: &Advance,
    mut top: Top,
    mut effect: EffectRow,
    (ready, resumed): (Ready, Option<Uuid>),
) -> Result<Option<Decision>, StepError> {
    let mut ready = match key::keep(tx, session, &top, &effect, ready, resumed.is_some()).await? {
        Key::Same(ready) => ready,
        Key::New => {
            key::renew(tx, session, &mut top.entry).await?;
            return Ok(None);
        }
        Key::Spent => {
            let (reason, why) = (DeadLetterReason::CallChanged, key::WHY_SPENT);
            give_up(tx, session, rollback, &mut top.entry, &mut effect, reason, why).await?;
            return Ok(None);
        }
    };
    ready.rules.key_may_be_in_use = top.may_have_run && crate::guard!("walk.key_in_use");
    if resumed.is_none()
        && let Some(decision) = held_back(tx, session, step, &top, &ready).await?
    {
        return Ok(Some(decision));
    }
    let call = call(tx, session, step, top, &mut effect, *ready, resumed).await?;
    Ok(Some(Decision::Call(Box::new(call))))
}

/// What keeps a call from being made now.
async fn held_back(
    tx: &mut Tenant,
    session: &LockedSession,
    step: &Advance,
    top: &Top,
    ready: &Ready,
) -> Result<Option<Decision>, StepError> {
    let wish = Wish {
        undo_id: top.entry.undo_id,
        route: Route { compensation_fn: &top.entry.compensation_fn, host: &ready.host },
        limits: ready.limits,
        t: session.now(),
        jitter_percent: step.jitter_percent,
    };
    // First: what a gate lets through is called, and counted.
    if top.is_suspect() && step.place != Place::OwnProcess && crate::guard!("walk.own_process") {
        return Ok(Some(Decision::NeedsOwnProcess));
    }
    Ok(gate::ask(tx, &wish).await?.map(|(until, gate)| Decision::Wait(until, gate)))
}

fn is_granted(effect: &EffectRow, entry: &UndoRow) -> Result<bool, StepError> {
    Ok(entry.attempt == effect.attempt && effect.has_live_grant()?)
}

/// The entry's last call ended with its worker. Whichever of the worker's calls ended it: this one
/// is not counted, and made again in a process of its own, where it can end nothing else and
/// nothing else can end it.
async fn interrupted(
    tx: &mut Tenant,
    session: &mut LockedSession,
    step: &Advance,
    top: &mut Top,
    open: Uuid,
) -> Result<(), StepError> {
    attempt::interrupt(tx, session, open).await?;
    let entry = &mut top.entry;
    metrics::counter!("undolog_compensations_total", "outcome" => "interrupted").increment(1);
    settle::back_off(session, entry, 1, step.jitter_percent)?;
    undo::save(tx, entry).await
}

/// Writes down that the call is about to be made.
async fn call(
    tx: &mut Tenant,
    session: &mut LockedSession,
    step: &Advance,
    top: Top,
    effect: &mut EffectRow,
    ready: Ready,
    resumed: Option<Uuid>,
) -> Result<PreparedCall, StepError> {
    let Top { mut entry, last_number, .. } = top;
    let (undo_attempt_id, number) = match resumed {
        // The row stands, and its call was never made: the answer to its step was lost.
        Some(id) => (id, last_number.unwrap_or(1)),
        None => {
            let new = attempt::insert(tx, session, &step.claim, &entry, &ready).await?;
            begin(session, &mut entry, effect)?;
            entry.next_try_at = None;
            undo::save(tx, &entry).await?;
            effects::save(tx, effect).await?;
            (new.undo_attempt_id, new.number)
        }
    };
    Ok(PreparedCall {
        undo_attempt_id,
        undo_id: entry.undo_id,
        effect_id: entry.effect_id,
        number,
        compensation: entry.compensation_fn,
        call: ready.call,
        rules: ready.rules,
    })
}

/// The first call of an entry moves the entry and, if it is the newest attempt's, the effect.
fn begin(
    session: &mut LockedSession,
    entry: &mut UndoRow,
    effect: &mut EffectRow,
) -> Result<(), StepError> {
    if entry.state()? == UndoState::Pending {
        entry.apply(session, UndoEvent::Started, ACTOR, json!({}))?;
    }
    if entry.attempt != effect.attempt {
        return Ok(());
    }
    match effect.state()? {
        EffectState::Committed | EffectState::Unknown | EffectState::Failed => {
            effect.apply(session, EffectEvent::CompensationStarted, ACTOR, json!({}))
        }
        EffectState::CompensationFailed => {
            effect.apply(session, EffectEvent::CompensationRetried, ACTOR, json!({}))
        }
        _ => Ok(()),
    }
}
