//! Reject: final, and it wins while the request is pending.

use std::net::IpAddr;

use serde_json::json;
use undolog_core::state::{ApprovalEvent, ApprovalState, EffectEvent, SessionEvent, SessionState};
use uuid::Uuid;

use super::{AuditLine, announce, audit, lock};
use crate::{
    effects,
    error::{Decided, StepError},
    payload::check_text,
    rollback,
    session::LockedSession,
    step::{Caller, Step},
    tenant::Tenant,
};

/// Rejects a pending request.
#[derive(Debug, Clone)]
pub struct Reject {
    /// Who decides.
    pub caller: Caller,
    /// The request.
    pub approval_id: Uuid,
    /// The name that the request claims; kept beside the key's principal.
    pub actor: String,
    /// A note for people.
    pub note: String,
    /// Where the decision came from, as a proxy saw it whose word is believed.
    pub actor_ip: Option<IpAddr>,
}

impl Step for Reject {
    type Reply = Uuid;
    const NAME: &'static str = "reject";

    fn org_id(&self) -> Uuid {
        self.caller.org_id
    }

    /// Answers the effect's id.
    async fn run(&self, tx: &mut Tenant) -> Result<Decided<Uuid>, StepError> {
        check_text("note", &self.note)?;
        check_text("actor", &self.actor)?;
        let actor = &self.caller.principal;
        let (mut session, mut approval) = lock(tx, self.approval_id, &self.caller).await?;
        if approval.state()? != ApprovalState::Pending && crate::guard!("approvals.pending") {
            return Err(approval.already_resolved().into());
        }
        let mut effect = effects::require(tx, &session, approval.effect_id).await?;
        effect.apply(&mut session, EffectEvent::Rejected, actor, json!({}))?;
        effect.rejected_by = Some("decision".to_owned());
        effects::save(tx, &effect).await?;
        approval.apply(&mut session, ApprovalEvent::Rejected, actor)?;
        approval.resolved_at = Some(session.now());
        approval.resolved_by = Some(actor.clone());
        approval.save(tx).await?;
        let line = AuditLine {
            action: "reject",
            actor,
            claimed_actor: Some(self.actor.as_str()).filter(|name| !name.is_empty()),
            note: Some(self.note.as_str()).filter(|note| !note.is_empty()),
            args_diff: None,
            actor_ip: self.actor_ip,
        };
        audit(tx, &session, approval.id(), &line).await?;
        announce(tx, effect.effect_id).await?;
        let why = "an approval was rejected";
        after_rejection(tx, &mut session, self.approval_id, actor, why).await?;
        session.save(tx).await?;
        Ok(Ok(effect.effect_id))
    }
}

/// What a rejection or a timeout does to a session that is live: it halts (documented), or by
/// policy is rolled back, or goes on without the call.
pub(super) async fn after_rejection(
    tx: &mut Tenant,
    session: &mut LockedSession,
    approval_id: Uuid,
    actor: &str,
    why: &str,
) -> Result<(), StepError> {
    if session.row.on_rejection == "continue" {
        return session.approvals_changed(-1, actor);
    }
    session.row.approvals_pending -= 1;
    let partial = rollback::live_partial(tx, session).await?;
    if partial.is_none() && !session.state().is_live() {
        return Ok(());
    }
    if session.row.on_rejection == "rollback" {
        let wanted = rollback::Start::whole("rejection", actor, why);
        rollback::start(tx, session, &wanted).await?;
        return Ok(());
    }
    // The documented halt waits until the rollback of later calls has ended.
    if let Some(mut partial) = partial {
        partial.returns_to = Some(SessionState::Halted.as_str().to_owned());
        return rollback::save(tx, &partial).await;
    }
    let detail = json!({"approval_id": approval_id, "why": why});
    session.apply(SessionEvent::RejectionHalted, actor, detail)
}
