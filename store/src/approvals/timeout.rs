//! The end of an approval's window: exactly one resolution, whoever sweeps and whoever decides.

use serde_json::json;
use undolog_core::{
    json::canonical,
    state::{ApprovalEvent, ApprovalState, EffectEvent, SessionState},
};
use uuid::Uuid;

use super::{
    ApprovalRow, AuditLine, announce, approve::set_args, audit, is_due, lock_any,
    reject::after_rejection,
};
use crate::{
    effects,
    error::{Decided, StepError},
    step::Step,
    tenant::Tenant,
};

/// Who resolves what nobody decided (documented).
const ACTOR: &str = "system:timeout";

/// Resolves one request whose window is over, by the policy that was fixed when it was asked.
#[derive(Debug, Clone, Copy)]
pub struct TimeOut {
    /// The organisation.
    pub org_id: Uuid,
    /// The request.
    pub approval_id: Uuid,
}

impl Step for TimeOut {
    type Reply = Option<ApprovalState>;
    const NAME: &'static str = "approval_timeout";

    fn org_id(&self) -> Uuid {
        self.org_id
    }

    /// Answers what the request became; `None`: it is not its time, or somebody decided.
    async fn run(&self, tx: &mut Tenant) -> Result<Decided<Option<ApprovalState>>, StepError> {
        let Some((mut session, mut approval)) = lock_any(tx, self.approval_id).await? else {
            return Ok(Ok(None));
        };
        let is_pending = approval.state()? == ApprovalState::Pending;
        if !is_pending || !is_due(tx, &session, &approval).await? {
            return Ok(Ok(None));
        }
        let mut effect = effects::require(tx, &session, approval.effect_id).await?;
        // A call of a session that has ended can never run: approving it would say otherwise.
        let can_run = session.state().is_live() || session.state() == SessionState::Compensating;
        let auto = can_run && is_auto(tx, &approval).await?;
        if auto {
            effect.apply(&mut session, EffectEvent::AutoApproved, ACTOR, json!({}))?;
            // The approved arguments are always set, and the grant is bound to them.
            let proposed = canonical(&approval.proposed()?);
            set_args(&mut approval, &proposed)?;
            approval.apply(&mut session, ApprovalEvent::AutoApproved, ACTOR)?;
        } else {
            effect.apply(&mut session, EffectEvent::TimedOut, ACTOR, json!({}))?;
            effect.rejected_by = Some("timeout".to_owned());
            approval.apply(&mut session, ApprovalEvent::TimedOut, ACTOR)?;
        }
        effects::save(tx, &effect).await?;
        approval.resolved_at = Some(session.now());
        approval.resolved_by = Some(ACTOR.to_owned());
        approval.save(tx).await?;
        let line = AuditLine { action: "timeout", actor: ACTOR, ..AuditLine::default() };
        audit(tx, &session, approval.id(), &line).await?;
        announce(tx, effect.effect_id).await?;
        if auto {
            session.approvals_changed(-1, ACTOR)?;
        } else {
            after_rejection(tx, &mut session, self.approval_id, ACTOR, "an approval timed out")
                .await?;
        }
        session.save(tx).await?;
        Ok(Ok(Some(approval.state()?)))
    }
}

/// The policy fixed at the request, unless the organisation has since listed one of its tags.
async fn is_auto(tx: &mut Tenant, approval: &ApprovalRow) -> Result<bool, StepError> {
    if !approval.auto_approve_on_timeout {
        return Ok(false);
    }
    let org_id = tx.org_id();
    let never: bool = sqlx::query_scalar(
        "SELECT never_auto_approve_tags && $2 FROM undolog_orgs WHERE org_id = $1",
    )
    .bind(org_id)
    .bind(&approval.risk_tags)
    .fetch_one(tx.conn())
    .await?;
    Ok(!never || !crate::guard!("approvals.never_auto"))
}
