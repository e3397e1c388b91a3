//! A lapse: an approval that nobody used counts no more. What becomes of the session is the lease's
//! or the idle rule's decision.

use serde_json::json;
use undolog_core::state::{ApprovalEvent, EffectEvent};
use uuid::Uuid;

use super::{ApprovalRow, lock_any};
use crate::{
    effects::{self, EffectRow},
    error::{Decided, StepError},
    session::LockedSession,
    step::Step,
    tenant::Tenant,
};

/// Who lets approvals lapse.
const ACTOR: &str = "system:lapse";

/// Rejects the effect of an approval that lapsed; the decision stays as it was given.
pub(crate) async fn lapse(
    tx: &mut Tenant,
    session: &mut LockedSession,
    approval: &mut ApprovalRow,
    effect: &mut EffectRow,
) -> Result<(), StepError> {
    effect.apply(session, EffectEvent::Lapsed, ACTOR, json!({"approval_id": approval.id()}))?;
    effect.rejected_by = Some("lapse".to_owned());
    effects::save(tx, effect).await?;
    approval.resolve(tx, session, ApprovalEvent::Lapsed, ACTOR, None).await
}

/// Lets one approval lapse, if it is time.
#[derive(Debug, Clone, Copy)]
pub struct LapseApproval {
    /// The organisation.
    pub org_id: Uuid,
    /// The request.
    pub approval_id: Uuid,
}

impl Step for LapseApproval {
    type Reply = bool;
    const NAME: &'static str = "lapse_approval";

    fn org_id(&self) -> Uuid {
        self.org_id
    }

    /// Answers whether it lapsed now.
    async fn run(&self, tx: &mut Tenant) -> Result<Decided<bool>, StepError> {
        let Some((mut session, mut approval)) = lock_any(tx, self.approval_id).await? else {
            return Ok(Ok(false));
        };
        let mut effect = effects::require(tx, &session, approval.effect_id).await?;
        let is_due = approval.has_lapsed(tx, &session).await?;
        if !is_due || !approval.is_open_for(&effect)? {
            return Ok(Ok(false));
        }
        lapse(tx, &mut session, &mut approval, &mut effect).await?;
        session.save(tx).await?;
        Ok(Ok(true))
    }
}
