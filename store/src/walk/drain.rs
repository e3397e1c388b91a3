//! The drain: nothing is undone while a call in scope can still be running.

use chrono::{DateTime, Duration, Utc};
use serde_json::json;
use undolog_core::state::{DeadLetterReason, EffectEvent, RollbackEvent};
use uuid::Uuid;

use super::ACTOR;
use crate::{
    dead_letters::{self, About},
    effects,
    error::StepError,
    rollback::{self, RollbackRow},
    session::LockedSession,
    tenant::Tenant,
};

/// Ends the drain if it can end. `Some`: not before this time, as far as it is known now.
pub(super) async fn drain(
    tx: &mut Tenant,
    session: &mut LockedSession,
    rollback: &mut RollbackRow,
) -> Result<Option<DateTime<Utc>>, StepError> {
    lose_expired(tx, session, rollback).await?;
    if crate::guard!("walk.drain")
        && let Some(until) = rollback::drain_until(tx, session, rollback.from_position).await?
    {
        return Ok(Some(until.max(session.now() + look_again(rollback, session.now()))));
    }
    open_undecided(tx, session, rollback).await?;
    rollback.apply(session, RollbackEvent::Drained, ACTOR, json!({}))?;
    rollback.drained_at = Some(session.t());
    rollback::save(tx, rollback).await?;
    Ok(None)
}

/// The pause before the next look at a drain that waits for something without a known time, such
/// as a service of ours that is away: a tenth of the time that it has waited, within bounds.
/// Whatever ends a call makes its rollback due by itself.
fn look_again(rollback: &RollbackRow, t: DateTime<Utc>) -> Duration {
    let waited = t - rollback.created_at;
    (waited / 10).clamp(Duration::milliseconds(500), Duration::seconds(5))
}

/// Grants in scope whose lease is over become unknown here, so that the drain does not wait for a
/// sweep.
async fn lose_expired(
    tx: &mut Tenant,
    session: &mut LockedSession,
    rollback: &RollbackRow,
) -> Result<(), StepError> {
    let org_id = tx.org_id();
    let expired: Vec<Uuid> = sqlx::query_scalar(include_str!("../../sql/walk_drain_grants.sql"))
        .bind(session.id())
        .bind(org_id)
        .bind(session.row.started_at)
        .bind(rollback.from_position)
        .bind(session.row.via_proxy)
        .bind(session.now())
        .bind(session.executed_until())
        .fetch_all(tx.conn())
        .await?;
    for effect_id in expired {
        let mut effect = effects::require(tx, session, effect_id).await?;
        effect.lose(session, EffectEvent::LeaseLost, ACTOR)?;
        effects::save(tx, &effect).await?;
    }
    Ok(())
}

/// Irreversible effects of which nobody knows whether they happened wait for a human, each in one
/// dead letter; the walk goes on.
async fn open_undecided(
    tx: &mut Tenant,
    session: &mut LockedSession,
    rollback: &RollbackRow,
) -> Result<(), StepError> {
    let org_id = tx.org_id();
    loop {
        let page: Vec<(Uuid, String, String)> =
            sqlx::query_as(include_str!("../../sql/walk_undecided.sql"))
                .bind(session.id())
                .bind(org_id)
                .bind(session.row.started_at)
                .bind(rollback.from_position)
                .bind(session.executed_until())
                .fetch_all(tx.conn())
                .await?;
        if page.is_empty() {
            return Ok(());
        }
        for (effect_id, tool_name, state) in page {
            let about = About { effect_id, undo_id: None, rollback_id: Some(rollback.rollback_id) };
            let detail = format!("nobody knows whether {tool_name} took effect: it is {state}");
            let reason = DeadLetterReason::OutcomeUnknown;
            dead_letters::open(tx, session, about, reason, &detail, ACTOR).await?;
        }
    }
}
