//! Skip: what could not be undone is left as it is, for a reason that stays on record.

use serde_json::json;
use undolog_core::state::{EffectEvent, EffectState, SessionState, SkipReason, UndoState};
use uuid::Uuid;

use super::{
    go_on,
    letter::{Action, Letter},
};
use crate::{
    dead_letters, effects,
    error::{Decided, StepError},
    session::LockedSession,
    step::{Caller, Step},
    tenant::Tenant,
    undo,
};

/// Skips a dead letter: its entry is skipped, and the walk goes on.
#[derive(Debug, Clone)]
pub struct SkipDeadLetter {
    /// Who decides.
    pub caller: Caller,
    /// The dead letter.
    pub dead_letter_id: Uuid,
    /// Why; required.
    pub reason: String,
}

impl Step for SkipDeadLetter {
    /// The session's state afterwards.
    type Reply = SessionState;
    const NAME: &'static str = "skip_dead_letter";

    fn org_id(&self) -> Uuid {
        self.caller.org_id
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<SessionState>, StepError> {
        let action = Action::Skip(self.reason.clone());
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
    reason: &str,
    actor: &str,
) -> Result<(), StepError> {
    letter.refuse_unknown()?;
    letter.refuse_contradicted()?;
    // A call that had begun again and was given up before it was made: it is not being undone.
    if letter.is_of_newest() && letter.effect.state()? == EffectState::Compensating {
        let effect = &mut letter.effect;
        effect.apply(session, EffectEvent::CompensationFailed, actor, json!({}))?;
        effects::save(tx, effect).await?;
    }
    if let Some(entry) = &mut letter.entry
        && entry.state()? == UndoState::Failed
    {
        entry.skip(session, SkipReason::Operator, actor)?;
        undo::save(tx, entry).await?;
    }
    dead_letters::close(tx, session, letter.id, actor, "skipped", Some(reason)).await?;
    go_on::without_obstacle(tx, session, actor).await
}
