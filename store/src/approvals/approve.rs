//! Approve: one decision wins, by the database's clock.

use std::net::IpAddr;

use serde_json::json;
use undolog_core::{
    json::{canonical, from_serde, parse_strict, to_serde},
    limits,
    reason::{Reason, Refusal},
    state::{ApprovalEvent, ApprovalState, EffectEvent, SessionState},
};
use uuid::Uuid;

use super::{ApprovalRow, AuditLine, announce, audit, is_due, lock, vote};
use crate::{
    effects,
    error::{Decided, StepError},
    payload::{self, check_text},
    registry,
    session::LockedSession,
    step::{Caller, Step},
    tenant::Tenant,
};

/// Approves a pending request, as asked or with edited arguments.
#[derive(Debug, Clone)]
pub struct Approve {
    /// Who decides.
    pub caller: Caller,
    /// The request.
    pub approval_id: Uuid,
    /// The name that the request claims; kept beside the key's principal.
    pub actor: String,
    /// Edited arguments as JSON.
    pub approved_args: Option<Vec<u8>>,
    /// A note for people.
    pub note: String,
    /// Where the decision came from, as a proxy saw it whose word is believed.
    pub actor_ip: Option<IpAddr>,
}

/// What an approval answers.
#[derive(Debug, Clone)]
pub struct Approved {
    /// The effect that may now run once.
    pub effect_id: Uuid,
    /// Its session.
    pub session_id: Uuid,
    /// The tool.
    pub tool_name: String,
    /// The tool's version at call time.
    pub tool_version: String,
    /// The arguments that were approved.
    pub args: Vec<u8>,
}

impl Step for Approve {
    type Reply = Approved;
    const NAME: &'static str = "approve";

    fn org_id(&self) -> Uuid {
        self.caller.org_id
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<Approved>, StepError> {
        check_text("note", &self.note)?;
        check_text("actor", &self.actor)?;
        let actor = &self.caller.principal;
        let (mut session, mut approval) = lock(tx, self.approval_id, &self.caller).await?;
        if approval.state()? != ApprovalState::Pending && crate::guard!("approvals.pending") {
            return Err(approval.already_resolved().into());
        }
        if is_due(tx, &session, &approval).await? {
            return Err(Refusal::new(Reason::ApprovalTimedOut)
                .with("approval_id", self.approval_id)
                .into());
        }
        refuse_ended(&session)?;
        let mut effect = effects::require(tx, &session, approval.effect_id).await?;
        vote::refuse_requester(&approval, &self.caller)?;
        let proposed = canonical(&approval.proposed()?);
        let ballot = vote::ballot(tx, &approval).await?;
        let approved = match &self.approved_args {
            None => {
                vote::refuse_unseen(&approval, &ballot, &proposed)?;
                proposed.clone()
            }
            Some(bytes) => {
                self.edited(tx, &session, bytes, &effect.tool_name, &effect.tool_version).await?
            }
        };
        let is_edit = approved != proposed;
        set_args(&mut approval, &approved)?;
        let is_reached = approval.quorum <= 1
            || vote::cast(tx, &session, &approval, &ballot, &approved, actor).await?;
        if is_reached {
            approval.resolved_at = Some(session.now());
            approval.resolved_by = Some(actor.clone());
            effect.apply(&mut session, EffectEvent::Approved, actor, json!({"edited": is_edit}))?;
            effects::save(tx, &effect).await?;
        }
        let event = match (is_reached, is_edit) {
            (false, _) => ApprovalEvent::Voted,
            (true, false) => ApprovalEvent::Approved,
            (true, true) => ApprovalEvent::Modified,
        };
        approval.apply(&mut session, event, actor)?;
        approval.save(tx).await?;
        let line = AuditLine {
            action: if is_edit { "modify" } else { "approve" },
            actor,
            claimed_actor: Some(self.actor.as_str()).filter(|name| !name.is_empty()),
            note: Some(self.note.as_str()).filter(|note| !note.is_empty()),
            args_diff: if is_edit { Some(diff(&proposed, &approved)?) } else { None },
            actor_ip: self.actor_ip,
        };
        audit(tx, &session, approval.id(), &line).await?;
        if is_reached {
            session.approvals_changed(-1, actor)?;
        }
        announce(tx, effect.effect_id).await?;
        let reply = Approved {
            effect_id: effect.effect_id,
            session_id: session.id(),
            tool_name: effect.tool_name,
            tool_version: effect.tool_version,
            args: approved.into_bytes(),
        };
        session.save(tx).await?;
        Ok(Ok(reply))
    }
}

impl Approve {
    /// Edited arguments in canonical form, checked against the tool's schema.
    async fn edited(
        &self,
        tx: &mut Tenant,
        session: &LockedSession,
        bytes: &[u8],
        tool_name: &str,
        tool_version: &str,
    ) -> Result<String, StepError> {
        if bytes.len() > limits::ARGS_BYTES_MAX {
            return Err(StepError::refuse(Reason::LimitExceeded, "approved_args are too large"));
        }
        let node = parse_strict(bytes)
            .map_err(|error| StepError::refuse(Reason::ArgsInvalid, error.to_string()))?;
        let tool = registry::tool(tx, session.row.registry_epoch, tool_name, tool_version).await?;
        if let Some(tool) = tool {
            tool.check_args(tx, &node)?
                .map_err(|error| StepError::refuse(Reason::ArgsInvalid, error))?;
        }
        Ok(canonical(&node))
    }
}

/// Keeps the arguments that are approved; the grant is bound to their digest.
pub(super) fn set_args(approval: &mut ApprovalRow, approved: &str) -> Result<(), StepError> {
    let node =
        parse_strict(approved.as_bytes()).map_err(|error| StepError::Corrupt(error.to_string()))?;
    let stored = payload::store(&node, approved.as_bytes());
    approval.approved_text = Some(stored.jsonb_text);
    approval.approved_raw = stored.raw;
    approval.args_digest = Some(blake3::hash(approved.as_bytes()).as_bytes().to_vec());
    Ok(())
}

/// A session that has ended takes no decision that would let a call run.
fn refuse_ended(session: &LockedSession) -> Result<(), StepError> {
    match session.state() {
        SessionState::Active | SessionState::AwaitingApproval | SessionState::Compensating => {
            Ok(())
        }
        ended => {
            let reason = Reason::of_session(ended).unwrap_or(Reason::Internal);
            Err(StepError::Refused(Refusal::new(reason)))
        }
    }
}

/// The edit as RFC 6902, from the proposed to the approved arguments, as jsonb takes it: a NUL is
/// shown there, and the approved arguments keep it.
fn diff(proposed: &str, approved: &str) -> Result<String, StepError> {
    let read = |text| payload::read(text, None).map(|node| to_serde(&node));
    let patch = json_patch::diff(&read(proposed)?, &read(approved)?);
    let patch = serde_json::to_value(patch)
        .map_err(|error| StepError::Corrupt(format!("an edit of arguments: {error}")))?;
    Ok(payload::store(&from_serde(&patch), &[]).jsonb_text)
}
