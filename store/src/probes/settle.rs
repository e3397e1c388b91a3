//! What an answer does.

use chrono::Duration;
use undolog_core::{json::show_text, probe::Answer, role::Role, state::EffectState};
use uuid::Uuid;

use super::ACTOR;
use crate::{
    effects::{self, EffectRow},
    error::{Decided, StepError},
    operate::{Resolution, ResolveEffect},
    service,
    session::LockedSession,
    step::{Caller, Step},
    tenant::Tenant,
};

/// Characters of an error that are kept.
const ERROR_CHARS_MAX: usize = 500;

/// Writes down an answer, and settles the effect when it is clear.
#[derive(Debug, Clone)]
pub struct SettleProbe {
    /// The organisation.
    pub org_id: Uuid,
    /// The session.
    pub session_id: Uuid,
    /// The effect.
    pub effect_id: Uuid,
    /// The attempt that was asked about.
    pub attempt: i32,
    /// The answer.
    pub answer: Answer,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// The effect is settled.
    Resolved,
    /// It stays unknown.
    Stays,
    /// Somebody else has settled it, or it runs again.
    TooLate,
}

impl Step for SettleProbe {
    type Reply = Settled;
    const NAME: &'static str = "settle_probe";

    fn org_id(&self) -> Uuid {
        self.org_id
    }

    fn session_id(&self) -> Option<Uuid> {
        Some(self.session_id)
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<Settled>, StepError> {
        let Some(session) = LockedSession::lock_any(tx, self.session_id).await? else {
            return Ok(Ok(Settled::TooLate));
        };
        let effect = effects::require(tx, &session, self.effect_id).await?;
        let is_asked = effect.state()? == EffectState::Unknown && effect.attempt == self.attempt;
        if !is_asked && crate::guard!("probe.attempt") {
            return Ok(Ok(Settled::TooLate));
        }
        // A call that may still be running has not happened yet, which says nothing.
        let is_early = self.answer == Answer::DidNotHappen
            && crate::guard!("probe.settled")
            && !is_over(tx, &session, &effect).await?;
        self.write(tx, &effect, is_early).await?;
        let resolve = match &self.answer {
            Answer::Happened(output) => {
                Resolution::Committed { output: output.to_text_exact().into_bytes() }
            }
            Answer::DidNotHappen if !is_early => Resolution::NotApplied,
            Answer::DidNotHappen | Answer::CannotTell(_) => return Ok(Ok(Settled::Stays)),
        };
        let step = ResolveEffect {
            caller: Caller {
                org_id: self.org_id,
                principal: ACTOR.to_owned(),
                role: Role::Operator,
                via_proxy: false,
            },
            session_id: self.session_id,
            effect_id: self.effect_id,
            resolve,
            note: format!("the tool's probe answered: {}", self.answer.as_str()),
        };
        // In this transaction, under the lock that is held already.
        Ok(step.run(tx).await?.map(|_| Settled::Resolved))
    }
}

/// Nothing of the call can still be running: as the drain of a rollback waits for it. After an
/// outage of ours, or when the clock was put forward, that counts from our return.
async fn is_over(
    tx: &mut Tenant,
    session: &LockedSession,
    effect: &EffectRow,
) -> Result<bool, StepError> {
    let settle_ms = session.row.settle_ms.or(effect.lease_ms).unwrap_or(0);
    let lost_at = effect.lost_at.unwrap_or(effect.executed_at);
    if lost_at + Duration::milliseconds(settle_ms) > session.now() {
        return Ok(false);
    }
    let since = service::running_since(tx, session).await?;
    Ok(since.is_some_and(|since| since + Duration::milliseconds(settle_ms) <= session.now()))
}

impl SettleProbe {
    async fn write(
        &self,
        tx: &mut Tenant,
        effect: &EffectRow,
        is_early: bool,
    ) -> Result<(), StepError> {
        let error = match &self.answer {
            Answer::CannotTell(why) => {
                let short: String = why.chars().take(ERROR_CHARS_MAX).collect();
                Some(show_text(&short).0)
            }
            Answer::Happened(_) | Answer::DidNotHappen => None,
        };
        let org_id = tx.org_id();
        sqlx::query(
            "UPDATE undolog_effect_log SET probe_answer = $4, probe_error = $5, \
             probe_count = greatest(probe_count - $6, 0) \
             WHERE effect_id = $1 AND executed_at = $2 AND org_id = $3",
        )
        .bind(effect.effect_id)
        .bind(effect.executed_at)
        .bind(org_id)
        .bind(self.answer.as_str())
        .bind(error)
        // An early answer was not worth a question.
        .bind(i32::from(is_early))
        .execute(tx.conn())
        .await?;
        Ok(())
    }
}
