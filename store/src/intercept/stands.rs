//! A stored success of any attempt is the call's result: a report can name an earlier attempt, or
//! one of which an operator had said that it was not applied. The call is then never granted again:
//! its next Intercept replays that result.

use serde_json::json;
use sqlx::FromRow;
use undolog_core::{
    intercept::Found,
    state::{DeadLetterReason, EffectEvent, EffectState, SessionState, UndoState},
};
use uuid::Uuid;

use crate::{
    approvals, dead_letters,
    effects::{self, EffectRow},
    error::StepError,
    rollback,
    session::LockedSession,
    tenant::Tenant,
    undo::{self, UndoRow},
};

/// Who makes a stored result the call's.
const ACTOR: &str = "system:stored_result";

/// An attempt whose success is stored beside the effect's own row.
#[derive(Debug, FromRow)]
struct Stored {
    attempt: i32,
    position: Option<i32>,
    duration_ms: Option<i64>,
    result_text: Option<String>,
    result_raw: Option<Vec<u8>>,
}

/// Makes the newest stored success the effect's result, when the effect's own attempt has none and
/// no grant of it is out. `Some`: what is found instead of the effect's state.
pub(super) async fn apply(
    tx: &mut Tenant,
    session: &mut LockedSession,
    effect: &mut EffectRow,
) -> Result<Option<Found>, StepError> {
    let is_open = match effect.state()? {
        EffectState::Failed | EffectState::Unknown | EffectState::Rejected => true,
        EffectState::Pending | EffectState::Approved => !effect.has_live_grant()?,
        _ => false,
    };
    // Only these can have a result beside their row.
    let can_have = effect.attempt > 1 || effect.operator_said.as_deref() == Some("not_applied");
    if !is_open || !can_have || !crate::guard!("intercept.stored_result") {
        return Ok(None);
    }
    let Some(stored) = newest(tx, effect.effect_id).await? else { return Ok(None) };
    let letters = dead_letters::open_about(tx, effect.effect_id, None).await?;
    if letters.iter().any(|letter| letter.reason == DeadLetterReason::Contradicted.as_str()) {
        return Ok(Some(Found::Contradicted));
    }
    let entry = undo::of_attempt_or_shared(tx, effect, stored.attempt).await?;
    let undone = match &entry {
        None => None,
        Some(entry) => match entry.state()? {
            UndoState::Pending => None,
            UndoState::Skipped if entry.is_not_applied() => None,
            UndoState::Running => Some(Found::Compensating),
            UndoState::Compensated => Some(Found::Compensated),
            UndoState::Failed | UndoState::Skipped => Some(Found::CompensationFailed),
        },
    };
    let takes_calls = session.state().is_live() || session.state() == SessionState::Completed;
    if undone.is_some() {
        return Ok(undone);
    }
    if !takes_calls {
        // Nothing becomes of it any more; what the session is says why.
        return Ok(Some(Found::Committed));
    }
    stand(tx, session, effect, &stored, entry).await?;
    Ok(None)
}

/// The stored success becomes the effect's own, for a human who settled a contradiction as well.
pub(crate) async fn settle_contradiction(
    tx: &mut Tenant,
    session: &mut LockedSession,
    effect: &mut EffectRow,
) -> Result<(), StepError> {
    let is_open = matches!(
        effect.state()?,
        EffectState::Failed | EffectState::Unknown | EffectState::Rejected
    );
    let Some(stored) = newest(tx, effect.effect_id).await?.filter(|_| is_open) else {
        return Ok(());
    };
    write(tx, session, effect, &stored).await?;
    rollback::recount(tx, session).await
}

async fn stand(
    tx: &mut Tenant,
    session: &mut LockedSession,
    effect: &mut EffectRow,
    stored: &Stored,
    entry: Option<UndoRow>,
) -> Result<(), StepError> {
    void_approval(tx, session, effect).await?;
    write(tx, session, effect, stored).await?;
    let Some(mut entry) = entry else { return Ok(()) };
    if entry.state()? == UndoState::Skipped {
        let mut again = entry.again_on_top(session, Uuid::now_v7());
        again.attempt = effect.attempt;
        return undo::insert(tx, session, &again, ACTOR).await;
    }
    if entry.attempt == effect.attempt {
        return Ok(());
    }
    // The walk keeps an effect in step with the entry of its newest attempt.
    entry.attempt = effect.attempt;
    undo::save(tx, &entry).await
}

/// A failure of the newest attempt is no reason to skip the entry that it shares with an earlier
/// one which is known to have succeeded: the entry is that one's.
pub(crate) async fn keep_shared_entry(
    tx: &mut Tenant,
    effect: &EffectRow,
    entry: &mut UndoRow,
) -> Result<bool, StepError> {
    if effect.attempt == 1 || !effect.idempotent {
        return Ok(false);
    }
    let Some(stored) = newest(tx, effect.effect_id).await? else { return Ok(false) };
    if undo::of_attempt(tx, effect.effect_id, stored.attempt).await?.is_some() {
        return Ok(false);
    }
    entry.attempt = stored.attempt;
    undo::save(tx, entry).await?;
    Ok(true)
}

/// Nobody decides any more about a call that has happened.
async fn void_approval(
    tx: &mut Tenant,
    session: &mut LockedSession,
    effect: &mut EffectRow,
) -> Result<(), StepError> {
    let (EffectState::Pending | EffectState::Approved, Some(approval_id)) =
        (effect.state()?, effect.approval_request_id)
    else {
        return Ok(());
    };
    let approval = approvals::load(tx, session, approval_id).await?;
    let mut approval = approval.ok_or_else(|| {
        StepError::Corrupt(format!("effect {}: no approval {approval_id}", effect.effect_id))
    })?;
    if approvals::void(tx, session, effect, &mut approval, ACTOR).await? {
        session.approvals_changed(-1, ACTOR)?;
    }
    Ok(())
}

async fn write(
    tx: &mut Tenant,
    session: &mut LockedSession,
    effect: &mut EffectRow,
    stored: &Stored,
) -> Result<(), StepError> {
    let detail = json!({"attempt": stored.attempt});
    effect.apply(session, EffectEvent::ResultStands, ACTOR, detail)?;
    session.row.commits_total = session.row.commits_total.saturating_add(1);
    effect.committed_at = Some(session.t());
    effect.outcome = None;
    effect.rejected_by = None;
    effect.duration_ms = stored.duration_ms;
    effect.result_by = None;
    effect.position = effect.position.or(stored.position);
    effect.end_grant();
    effects::save(tx, effect).await?;
    effects::store_result(tx, effect, stored.result_text.as_deref(), stored.result_raw.as_deref())
        .await?;
    effect.result_text.clone_from(&stored.result_text);
    effect.result_raw.clone_from(&stored.result_raw);
    Ok(())
}

async fn newest(tx: &mut Tenant, effect_id: Uuid) -> Result<Option<Stored>, StepError> {
    let org_id = tx.org_id();
    Ok(sqlx::query_as(
        "SELECT attempt, position, duration_ms, \
         result_snapshot::text AS result_text, result_snapshot_raw AS result_raw \
         FROM undolog_effect_attempts \
         WHERE effect_id = $1 AND org_id = $2 AND result_snapshot IS NOT NULL \
         ORDER BY attempt DESC LIMIT 1",
    )
    .bind(effect_id)
    .bind(org_id)
    .fetch_optional(tx.conn())
    .await?)
}
