//! Resolve by hand: a human has undone it, or has settled what the dead letter asks.

use serde_json::json;
use undolog_core::{
    Tier,
    state::{DeadLetterReason, EffectEvent, EffectState, SessionState, UndoEvent, UndoState},
};
use uuid::Uuid;

use super::{
    go_on,
    letter::{Action, Letter},
};
use crate::{
    dead_letters,
    effects::{self, EffectRow},
    error::{Decided, StepError},
    intercept,
    session::LockedSession,
    step::{Caller, Step},
    tenant::Tenant,
    undo,
};

/// Settles a dead letter by hand: its entry counts as compensated, and the walk goes on.
#[derive(Debug, Clone)]
pub struct ResolveDeadLetter {
    /// Who decides.
    pub caller: Caller,
    /// The dead letter.
    pub dead_letter_id: Uuid,
    /// What was done; required.
    pub note: String,
}

impl Step for ResolveDeadLetter {
    /// The session's state afterwards.
    type Reply = SessionState;
    const NAME: &'static str = "resolve_dead_letter";

    fn org_id(&self) -> Uuid {
        self.caller.org_id
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<SessionState>, StepError> {
        let action = Action::Resolve(self.note.clone());
        let session = action.run_one(tx, &self.caller, self.dead_letter_id).await?;
        let state = session.state();
        session.save(tx).await?;
        Ok(Ok(state))
    }
}

pub(super) async fn apply(
    tx: &mut Tenant,
    session: &mut LockedSession,
    mut letter: Letter,
    note: &str,
    actor: &str,
) -> Result<(), StepError> {
    letter.refuse_unknown()?;
    if letter.reason == DeadLetterReason::Contradicted {
        contradicted(tx, session, &mut letter.effect, actor).await?;
    }
    let is_of_newest = letter.is_of_newest();
    if let Some(entry) = &mut letter.entry
        && entry.state()? == UndoState::Failed
    {
        entry.apply(session, UndoEvent::Resolved, actor, json!({}))?;
        undo::save(tx, entry).await?;
        if is_of_newest {
            undone_by_hand(tx, session, &mut letter.effect, actor).await?;
        }
    }
    dead_letters::close(tx, session, letter.id, actor, "resolved", Some(note)).await?;
    go_on::without_obstacle(tx, session, actor).await
}

/// The call happened after all, and a human has undone it where that can be done.
async fn contradicted(
    tx: &mut Tenant,
    session: &mut LockedSession,
    effect: &mut EffectRow,
    actor: &str,
) -> Result<(), StepError> {
    intercept::settle_contradiction(tx, session, effect).await?;
    if effect.tier()? == Tier::Compensable && effect.state()? == EffectState::Committed {
        undone_by_hand(tx, session, effect, actor).await?;
    }
    Ok(())
}

/// A human has undone the effect, wherever the walk had come with it.
pub(super) async fn undone_by_hand(
    tx: &mut Tenant,
    session: &mut LockedSession,
    effect: &mut EffectRow,
    actor: &str,
) -> Result<(), StepError> {
    match effect.state()? {
        EffectState::CompensationFailed | EffectState::Compensating => {}
        EffectState::Committed | EffectState::Unknown | EffectState::Failed => {
            effect.apply(session, EffectEvent::CompensationStarted, actor, json!({}))?;
            // The database judges each move by itself.
            effects::save(tx, effect).await?;
        }
        _ => return Ok(()),
    }
    effect.apply(session, EffectEvent::ResolvedCompensated, actor, json!({}))?;
    effect.compensated_at = Some(session.t());
    effects::save(tx, effect).await
}
