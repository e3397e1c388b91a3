//! The end of an entry that only a human can bring further: entry, effect, dead letter and, by
//! policy, session and rollback, in one transaction.

use serde_json::json;
use undolog_core::state::{DeadLetterReason, EffectEvent, EffectState, RollbackState, UndoEvent};

use super::ACTOR;
use crate::{
    dead_letters::{self, About},
    effects::{self, EffectRow},
    error::StepError,
    rollback::{self, RollbackRow},
    session::LockedSession,
    tenant::Tenant,
    undo::{self, UndoRow},
};

/// Gives an entry up.
pub(super) async fn give_up(
    tx: &mut Tenant,
    session: &mut LockedSession,
    rollback: &mut RollbackRow,
    entry: &mut UndoRow,
    effect: &mut EffectRow,
    reason: DeadLetterReason,
    detail: &str,
) -> Result<(), StepError> {
    entry.apply(session, UndoEvent::Failed, ACTOR, json!({"reason": reason.as_str()}))?;
    entry.cause = Some(reason.as_str().to_owned());
    entry.next_try_at = None;
    undo::save(tx, entry).await?;
    // An effect that waits for its outcome stays what it is: the outcome can still come.
    let waits =
        matches!(reason, DeadLetterReason::MissingResult | DeadLetterReason::OutcomeUnknown);
    if !waits && entry.attempt == effect.attempt {
        fail_effect(tx, session, effect).await?;
    }
    let about = About {
        effect_id: entry.effect_id,
        undo_id: Some(entry.undo_id),
        rollback_id: Some(rollback.rollback_id),
    };
    dead_letters::open(tx, session, about, reason, detail, ACTOR).await?;
    let stops = reason != DeadLetterReason::MissingResult
        && session.row.on_dead_letter != "continue"
        && crate::guard!("walk.halt");
    if stops && matches!(rollback.state()?, RollbackState::Draining | RollbackState::Walking) {
        rollback::finish(tx, session, rollback, ACTOR).await?;
    }
    Ok(())
}

async fn fail_effect(
    tx: &mut Tenant,
    session: &mut LockedSession,
    effect: &mut EffectRow,
) -> Result<(), StepError> {
    match effect.state()? {
        EffectState::Committed | EffectState::Unknown | EffectState::Failed => {
            effect.apply(session, EffectEvent::CompensationStarted, ACTOR, json!({}))?;
            // The database judges each move by itself.
            effects::save(tx, effect).await?;
        }
        EffectState::Compensating => {}
        _ => return Ok(()),
    }
    effect.apply(session, EffectEvent::CompensationFailed, ACTOR, json!({}))?;
    effects::save(tx, effect).await
}
