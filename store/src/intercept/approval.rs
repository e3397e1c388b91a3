//! An irreversible call: a human decides first, and one decision gives one grant.

use chrono::Duration;
use serde_json::{Value, json};
use undolog_core::{
    json::{canonical, parse_lossless},
    limits::AGENT_CONTEXT_CALLS,
    reason::{Reason, Refusal},
    state::{ApprovalEvent, ApprovalState, Subject},
};
use uuid::Uuid;

use super::{Intercept, InterceptReply, call::JudgedTool, find::Known, reply};
use crate::{
    approvals::{self, ApprovalRow},
    effects::{self, EffectRow},
    error::{Decided, StepError},
    payload,
    session::LockedSession,
    tenant::Tenant,
};

impl Intercept {
    /// Records a new irreversible call and asks for its approval.
    pub(super) async fn ask(
        &self,
        tx: &mut Tenant,
        session: &mut LockedSession,
        known: &Known,
        tool: &JudgedTool,
    ) -> Result<InterceptReply, StepError> {
        let mut effect = self.new_row(session, known, tool);
        effect.asked_position = Some(session.next_position());
        effect.approval_request_id = Some(Uuid::now_v7());
        self.record_new(session, &effect);
        self.insert_effect(tx, session, &effect, None).await?;
        self.request(tx, session, &effect, tool).await?;
        reply::awaiting(&effect)
    }

    /// Inserts the approval request of an attempt; its id is on the effect.
    pub(super) async fn request(
        &self,
        tx: &mut Tenant,
        session: &mut LockedSession,
        effect: &EffectRow,
        tool: &JudgedTool,
    ) -> Result<(), StepError> {
        if tool.reason.trim().is_empty() {
            return Err(self.tool_not_registered());
        }
        let org_id = tx.org_id();
        let approval_id = effect
            .approval_request_id
            .ok_or_else(|| StepError::Corrupt("a request without an id".to_owned()))?;
        let args = payload::store(&self.args, &self.input.args);
        let (context, context_raw) = self.agent_context(tx, session).await?;
        let policy = approvals::policy(tx, session, tool.tool_id, &tool.risk_tags).await?;
        let window = Duration::seconds(policy.timeout_seconds.into());
        sqlx::query(include_str!("../../sql/approval_insert.sql"))
            .bind(approval_id)
            .bind(org_id)
            .bind(session.id())
            .bind(effect.effect_id)
            .bind(effect.attempt)
            .bind(&effect.tool_name)
            .bind(&tool.reason)
            .bind(&tool.risk_tags)
            .bind(&tool.estimated_impact)
            .bind(args.jsonb_text)
            .bind(args.raw)
            .bind(context)
            .bind(context_raw)
            .bind(session.now() + window)
            .bind(policy.auto_approve_on_timeout)
            .bind(session.now())
            .bind(policy.quorum)
            .bind(policy.requester_may_approve)
            .bind(&self.input.caller.principal)
            .execute(tx.conn())
            .await?;
        let actor = &self.input.caller.principal;
        session.record(
            Subject::Approval,
            approval_id,
            ApprovalEvent::Requested.as_str(),
            None,
            ApprovalState::Pending.as_str(),
            Some(effect.attempt),
            actor,
            json!({"effect_id": effect.effect_id}),
        );
        session.approvals_changed(1, actor)
    }

    /// The session's last calls and the caller's own context, for the approver.
    async fn agent_context(
        &self,
        tx: &mut Tenant,
        session: &LockedSession,
    ) -> Result<(String, Option<Vec<u8>>), StepError> {
        let org_id = tx.org_id();
        let calls: Value = sqlx::query_scalar(include_str!("../../sql/session_last_calls.sql"))
            .bind(session.id())
            .bind(org_id)
            .bind(session.row.started_at)
            .bind(session.executed_until())
            .bind(i64::from(AGENT_CONTEXT_CALLS))
            .fetch_one(tx.conn())
            .await?;
        let caller = if self.input.agent_context.is_empty() {
            b"null"
        } else {
            self.input.agent_context.as_slice()
        };
        let node = parse_lossless(caller).map_err(|error| {
            StepError::refuse(Reason::InvalidArgument, format!("agent_context: {error}"))
        })?;
        let stored = payload::store(&node, caller);
        let whole = |caller: &str| format!("{{\"calls\":{calls},\"caller\":{caller}}}");
        let raw = stored.raw.map(|raw| whole(&String::from_utf8_lossy(&raw)).into_bytes());
        Ok((whole(&stored.jsonb_text), raw))
    }

    /// Grants an approved call, exactly once, and spends its approval.
    pub(super) async fn grant_approved(
        &self,
        tx: &mut Tenant,
        session: &mut LockedSession,
        effect: &EffectRow,
        tool: &JudgedTool,
    ) -> Result<Decided<InterceptReply>, StepError> {
        let mut effect = effect.clone();
        let mut approval = self.approval_of(tx, session, &effect).await?;
        if approval.has_lapsed(tx, session).await? {
            approvals::lapse(tx, session, &mut approval, &mut effect).await?;
            return Ok(Err(Refusal::new(Reason::ApprovalLapsed)
                .with("effect_id", effect.effect_id)
                .with("approval_id", approval.id())));
        }
        if !approval.is_open_for(&effect)? {
            return Err(StepError::Corrupt(format!(
                "effect {} is approved without an unspent approval",
                effect.effect_id
            )));
        }
        let edited = edited(&approval)?;
        if edited.is_some() && !self.input.accepts_approved_args {
            return Err(Refusal::new(Reason::ArgsModified)
                .with("effect_id", effect.effect_id)
                .with("approval_id", approval.id())
                .into());
        }
        let digest = approval.args_digest.clone().unwrap_or_default();
        let bytes = match &edited {
            Some(bytes) => bytes.clone(),
            None => self.canonical.clone().into_bytes(),
        };
        if blake3::hash(&bytes).as_bytes().as_slice() != digest.as_slice()
            && crate::guard!("intercept.digest")
        {
            return Err(StepError::Corrupt(format!(
                "approval {} is bound to other arguments",
                approval.id()
            )));
        }
        self.grant(session, &mut effect, tool)?;
        effects::save(tx, &effect).await?;
        approval.spend(tx, session, &self.input.caller.principal).await?;
        Ok(Ok(reply::execute(&effect, edited)))
    }

    /// The edited arguments of a granted call, for the same Execute again.
    pub(super) async fn edited_args(
        &self,
        tx: &mut Tenant,
        session: &LockedSession,
        effect: &EffectRow,
    ) -> Result<Option<Vec<u8>>, StepError> {
        if effect.approval_request_id.is_none() {
            return Ok(None);
        }
        edited(&self.approval_of(tx, session, effect).await?)
    }

    async fn approval_of(
        &self,
        tx: &mut Tenant,
        session: &LockedSession,
        effect: &EffectRow,
    ) -> Result<ApprovalRow, StepError> {
        let missing = || StepError::Corrupt("an approved effect without its request".to_owned());
        let approval_id = effect.approval_request_id.ok_or_else(missing)?;
        approvals::load(tx, session, approval_id).await?.ok_or_else(missing)
    }
}

/// The approved arguments, when they are not the proposed ones.
fn edited(approval: &ApprovalRow) -> Result<Option<Vec<u8>>, StepError> {
    let Some(approved) = approval.approved()? else { return Ok(None) };
    let approved = canonical(&approved);
    let is_edit = approved != canonical(&approval.proposed()?);
    Ok(is_edit.then(|| approved.into_bytes()))
}
