//! What a call's outcome does to its entry.

use chrono::Duration;
use serde_json::json;
use undolog_core::{
    json::show_text,
    limits::{DEFERRAL_TOTAL_MS_MAX, INTERRUPTIONS_MAX},
    retry::{CallOutcome, backoff_ms},
    state::{DeadLetterReason, EffectEvent, EffectState, UndoEvent, UndoState},
};
use uuid::Uuid;

use super::{ACTOR, Advance, LATE_SUCCESS, Outcome, Report, attempt, give_up::give_up, late};
use crate::{
    dead_letters::{self, About},
    effects::{self, EffectRow},
    error::StepError,
    rollback::RollbackRow,
    session::LockedSession,
    tenant::Tenant,
    undo::{self, UndoRow},
};

/// Settles the call that the holder of the claim has just made.
pub(super) async fn settle(
    tx: &mut Tenant,
    session: &mut LockedSession,
    rollback: &mut RollbackRow,
    step: &Advance,
    report: &Report,
) -> Result<(), StepError> {
    // Nothing left to write: an earlier try of this very step was committed and its answer lost.
    let Some(completed) = attempt::complete(tx, session, report).await? else { return Ok(()) };
    crate::crash_point!("worker.after_attempt_written");
    let mut entry = load(tx, completed.undo_id).await?;
    if entry.state()? != UndoState::Running || entry.round != completed.round {
        return late::settle(tx, session, report, &completed, entry).await;
    }
    let mut effect = effects::require(tx, session, entry.effect_id).await?;
    // A call that was given up says nothing about what it would have done.
    if matches!(report.outcome, Outcome::Ended(_)) {
        entry.interruptions = 0;
    }
    match report.outcome {
        Outcome::Ended(CallOutcome::Done) => {
            note_unconfirmed(tx, session, &mut entry, report).await?;
            compensated(tx, session, &mut entry, &mut effect, UndoEvent::Compensated).await?;
            if !completed.result_known {
                late_commit(tx, session, rollback, &entry, &effect).await?;
            }
            return Ok(());
        }
        Outcome::HandedBack => {
            entry.apply(session, UndoEvent::HandedBack, ACTOR, json!({}))?;
            return undo::save(tx, &entry).await;
        }
        Outcome::Ended(_) | Outcome::Died => {}
    }
    note_error(&mut entry, report);
    // A call of an earlier holder can have succeeded while this one failed.
    if attempt::has_success(tx, entry.undo_id).await? {
        return compensated(tx, session, &mut entry, &mut effect, UndoEvent::Compensated).await;
    }
    let mut detail = detail(report);
    match judged(session, &mut entry, report.outcome, step.jitter_percent)? {
        None => undo::save(tx, &entry).await,
        Some(reason) => {
            if reason == DeadLetterReason::Poison {
                let n = entry.interruptions;
                detail = format!("{n} processes in a row ended in this call, the last: {detail}");
            }
            give_up(tx, session, rollback, &mut entry, &mut effect, reason, &detail).await
        }
    }
}

/// The entry's next try, or why there is none.
fn judged(
    session: &mut LockedSession,
    entry: &mut UndoRow,
    outcome: Outcome,
    jitter_percent: u64,
) -> Result<Option<DeadLetterReason>, StepError> {
    let t = session.now();
    match outcome {
        Outcome::Ended(CallOutcome::Retry) => {
            entry.deferred_since = None;
            if i32::from(entry.retry_count) >= entry.max_retries {
                return Ok(Some(DeadLetterReason::Exhausted));
            }
            // The documented count is the retry that comes next, never the calls that failed.
            entry.retry_count = entry.retry_count.saturating_add(1);
            let next =
                t + backoff(entry, u32::from(entry.retry_count.unsigned_abs()), jitter_percent);
            entry.next_try_at = Some(next);
            let detail = json!({"failed_calls": entry.retry_count, "next_try_at": next});
            entry.apply(session, UndoEvent::AttemptFailed, ACTOR, detail)?;
            Ok(None)
        }
        Outcome::Ended(CallOutcome::Defer { after_ms }) => {
            let since = *entry.deferred_since.get_or_insert(t);
            if t - since >= milliseconds(DEFERRAL_TOTAL_MS_MAX) {
                return Ok(Some(DeadLetterReason::DeferredTooLong));
            }
            let next = t + milliseconds(after_ms);
            entry.next_try_at = Some(next);
            entry.apply(session, UndoEvent::Deferred, ACTOR, json!({"next_try_at": next}))?;
            Ok(None)
        }
        Outcome::Ended(CallOutcome::Permanent) => Ok(Some(DeadLetterReason::Permanent)),
        Outcome::Died => died(session, entry, jitter_percent),
        Outcome::Ended(CallOutcome::Done) | Outcome::HandedBack => Ok(None),
    }
}

/// The call ended a process that did nothing else, so it is its own doing. A few times are chance.
fn died(
    session: &mut LockedSession,
    entry: &mut UndoRow,
    jitter_percent: u64,
) -> Result<Option<DeadLetterReason>, StepError> {
    entry.interruptions = entry.interruptions.saturating_add(1);
    let n = u32::try_from(entry.interruptions).unwrap_or(u32::MAX);
    if n >= INTERRUPTIONS_MAX && crate::guard!("walk.poison") {
        return Ok(Some(DeadLetterReason::Poison));
    }
    back_off(session, entry, n, jitter_percent)?;
    Ok(None)
}

/// Lets an entry whose call ended with its process wait for its next try.
pub(super) fn back_off(
    session: &mut LockedSession,
    entry: &mut UndoRow,
    n: u32,
    jitter_percent: u64,
) -> Result<(), StepError> {
    let next = session.now() + backoff(entry, n, jitter_percent);
    entry.next_try_at = Some(next);
    let detail = json!({"alone_in_a_row": entry.interruptions, "next_try_at": next});
    entry.apply(session, UndoEvent::Interrupted, ACTOR, detail)
}

/// The entry is undone: entry, effect, and the dead letters about it.
pub(super) async fn compensated(
    tx: &mut Tenant,
    session: &mut LockedSession,
    entry: &mut UndoRow,
    effect: &mut EffectRow,
    event: UndoEvent,
) -> Result<(), StepError> {
    entry.apply(session, event, ACTOR, json!({}))?;
    undo::save(tx, entry).await?;
    if entry.attempt == effect.attempt {
        effect_compensated(tx, session, effect).await?;
    }
    // An entry that runs for the first time has never had a dead letter.
    if event == UndoEvent::LateSuccess || entry.round > 1 {
        for letter in dead_letters::open_about(tx, entry.effect_id, Some(entry.undo_id)).await? {
            let id = letter.dead_letter_id;
            dead_letters::close(tx, session, id, LATE_SUCCESS, "late_success", None).await?;
        }
    }
    Ok(())
}

async fn effect_compensated(
    tx: &mut Tenant,
    session: &mut LockedSession,
    effect: &mut EffectRow,
) -> Result<(), StepError> {
    match effect.state()? {
        EffectState::Compensating => {
            effect.apply(session, EffectEvent::Compensated, ACTOR, json!({}))?;
        }
        EffectState::CompensationFailed => {
            effect.apply(session, EffectEvent::LateSuccess, LATE_SUCCESS, json!({}))?;
        }
        EffectState::Committed | EffectState::Unknown | EffectState::Failed => {
            effect.apply(session, EffectEvent::CompensationStarted, ACTOR, json!({}))?;
            // The database judges each move by itself.
            effects::save(tx, effect).await?;
            effect.apply(session, EffectEvent::Compensated, ACTOR, json!({}))?;
        }
        _ => return Ok(()),
    }
    effect.compensated_at = Some(session.t());
    effects::save(tx, effect).await
}

/// The effect committed while a call that did not know its result was on its way: the same as a
/// commit after the compensation.
async fn late_commit(
    tx: &mut Tenant,
    session: &mut LockedSession,
    rollback: &RollbackRow,
    entry: &UndoRow,
    effect: &EffectRow,
) -> Result<(), StepError> {
    let has_result = effect.result_text.is_some() || effect.result_raw.is_some();
    if entry.attempt != effect.attempt || !has_result {
        return Ok(());
    }
    if entry.is_repeatable(tx, session).await? {
        let again = entry.again_on_top(session, Uuid::now_v7());
        return undo::insert(tx, session, &again, ACTOR).await;
    }
    let about = About {
        effect_id: entry.effect_id,
        undo_id: Some(entry.undo_id),
        rollback_id: Some(rollback.rollback_id),
    };
    let detail = "the call committed while its compensation was on its way";
    dead_letters::open(tx, session, about, DeadLetterReason::LateCommit, detail, ACTOR).await?;
    Ok(())
}

/// A status such as 404 can mean that the thing is gone, or that the URL is wrong. Where no call of
/// the compensation was ever answered with a success, somebody should look: it is said in the log,
/// counted, and stays on the entry.
async fn note_unconfirmed(
    tx: &mut Tenant,
    session: &LockedSession,
    entry: &mut UndoRow,
    report: &Report,
) -> Result<(), StepError> {
    let Some(status) = report.status.filter(|status| !(200..300).contains(status)) else {
        return Ok(());
    };
    let org_id = tx.org_id();
    let is_confirmed: bool = sqlx::query_scalar(include_str!("../../sql/walk_confirmed.sql"))
        .bind(org_id)
        .bind(&entry.compensation_fn)
        .fetch_one(tx.conn())
        .await?;
    if is_confirmed {
        return Ok(());
    }
    metrics::counter!("undolog_compensations_unconfirmed_total").increment(1);
    tracing::warn!(
        org.id = %org_id,
        session.id = %session.id(),
        undo.id = %entry.undo_id,
        compensation = entry.compensation_fn,
        status,
        "done by its status alone, and no newer call was answered with 2xx: is the URL right?"
    );
    entry.last_error = Some(format!(
        "HTTP {status} counts as done here, but none of the newest calls of this compensation was \
         answered with 2xx: check that its URL is right"
    ));
    entry.last_error_raw = None;
    Ok(())
}

/// Keeps what went wrong on the entry.
pub(super) fn note_error(entry: &mut UndoRow, report: &Report) {
    if let Some(error) = &report.error {
        let (shown, raw) = show_text(error);
        entry.last_error = Some(shown);
        entry.last_error_raw = raw;
    }
}

pub(super) async fn load(tx: &mut Tenant, undo_id: Uuid) -> Result<UndoRow, StepError> {
    let found = undo::load(tx, undo_id).await?;
    found.ok_or_else(|| StepError::Corrupt(format!("there is no undo entry {undo_id}")))
}

/// The backoff before the `n`-th retry.
fn backoff(entry: &UndoRow, n: u32, jitter_percent: u64) -> Duration {
    let base_ms = u64::try_from(entry.retry_backoff_ms).unwrap_or(0);
    milliseconds(backoff_ms(n, base_ms, jitter_percent))
}

fn milliseconds(ms: u64) -> Duration {
    Duration::milliseconds(i64::try_from(ms).unwrap_or(i64::MAX / 2))
}

fn detail(report: &Report) -> String {
    match (&report.error, report.status) {
        (Some(error), _) => error.clone(),
        (None, Some(status)) => format!("HTTP {status}"),
        (None, None) => String::new(),
    }
}
