//! Revoke: an approval that was not used yet is taken back.

use serde_json::json;
use undolog_core::{
    reason::{Reason, Refusal},
    state::{ApprovalEvent, EffectEvent},
};
use uuid::Uuid;

use super::{AuditLine, audit, lock};
use crate::{
    effects,
    error::{Decided, StepError},
    payload::check_text,
    step::{Caller, Step},
    tenant::Tenant,
};

/// Takes an unspent approval back. The call is rejected; the decision stays on record.
#[derive(Debug, Clone)]
pub struct Revoke {
    /// Who decides.
    pub caller: Caller,
    /// The request.
    pub approval_id: Uuid,
    /// A note for people.
    pub note: String,
}

impl Step for Revoke {
    type Reply = Uuid;
    const NAME: &'static str = "revoke";

    fn org_id(&self) -> Uuid {
        self.caller.org_id
    }

    /// Answers the effect's id.
    async fn run(&self, tx: &mut Tenant) -> Result<Decided<Uuid>, StepError> {
        check_text("note", &self.note)?;
        let actor = self.caller.principal.as_str();
        let (mut session, mut approval) = lock(tx, self.approval_id, &self.caller).await?;
        let mut effect = effects::require(tx, &session, approval.effect_id).await?;
        if !approval.state()?.is_approved() || !approval.is_open_for(&effect)? {
            return Err(Refusal::because(
                Reason::ApprovalAlreadyResolved,
                "only an approval that was given and not used can be revoked",
            )
            .with("approval_id", self.approval_id)
            .with("state", &approval.state)
            .with("effect_state", &effect.state)
            .into());
        }
        effect.apply(&mut session, EffectEvent::Revoked, actor, json!({}))?;
        effect.rejected_by = Some("revoke".to_owned());
        effects::save(tx, &effect).await?;
        let note = Some(self.note.as_str()).filter(|note| !note.is_empty());
        let line = AuditLine { action: "reject", actor, note, ..AuditLine::default() };
        audit(tx, &session, approval.id(), &line).await?;
        approval.resolve(tx, &mut session, ApprovalEvent::Revoked, actor, note).await?;
        session.save(tx).await?;
        Ok(Ok(effect.effect_id))
    }
}
