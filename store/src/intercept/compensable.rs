//! A compensable call: its undo entry is on the stack before its caller may run it.

use chrono::Duration;
use serde_json::json;
use undolog_core::{
    json::{Node, canonical, canonical_value_eq, parse_strict},
    limits,
    reason::{Reason, Refusal},
    role::Role,
    state::{EffectEvent, EffectState, Subject},
    template,
};
use uuid::{NoContext, Timestamp, Uuid};

use super::{
    DescriptorInput, Intercept, InterceptReply, StepRef, call::JudgedTool, find::Known, reply,
};
use crate::{
    effects::EffectRow,
    error::StepError,
    payload,
    registry::{self, CompensationBundle},
    session::LockedSession,
    tenant::Tenant,
    undo::{self, UndoRow},
};

/// What a compensable call will be undone with.
pub(super) struct Chosen {
    fn_name: String,
    fn_version: String,
    args_text: String,
    args_raw: Option<Vec<u8>>,
    result_templates: Vec<u8>,
    max_retries: i32,
    retry_backoff_ms: i32,
}

impl Intercept {
    /// Records a new call with its undo entry and grants it.
    pub(super) async fn grant_new(
        &self,
        tx: &mut Tenant,
        session: &mut LockedSession,
        known: &Known,
        tool: &JudgedTool,
    ) -> Result<InterceptReply, StepError> {
        let chosen = self.choose_compensation(tx, session, tool).await?;
        let mut effect = self.new_row(session, known, tool);
        self.record_new(session, &effect);
        self.grant(session, &mut effect, tool)?;
        self.insert_effect(tx, session, &effect, Some(&chosen)).await?;
        let entry = self.entry(session, &effect, chosen)?;
        undo::insert(tx, session, &entry, &self.input.caller.principal).await?;
        Ok(reply::execute(&effect, None))
    }

    /// Gives a grant under a lease: an event, a position and the times.
    pub(super) fn grant(
        &self,
        session: &mut LockedSession,
        effect: &mut EffectRow,
        tool: &JudgedTool,
    ) -> Result<(), StepError> {
        let actor = &self.input.caller.principal;
        if effect.position.is_none() {
            effect.position = Some(session.next_position());
        }
        // A proxy renews the grant of a call that it makes by itself.
        let heartbeats = self.input.heartbeats || (tool.has_upstream && self.is_of_executor());
        let lease_ms = tool.grant_lease_ms.unwrap_or(if heartbeats {
            limits::GRANT_LEASE_HEARTBEATS_MS as i64
        } else {
            limits::GRANT_LEASE_MS as i64
        });
        let execution_ms = tool.max_execution_ms.unwrap_or(limits::EXECUTION_MS_MAX as i64);
        let now = session.now();
        effect.granted_at = Some(now);
        effect.lease_renewed_at = Some(session.lease_from());
        effect.lease_ms = Some(lease_ms.min(execution_ms));
        effect.execution_ends_at =
            Some(session.lease_from() + Duration::milliseconds(execution_ms));
        effect.grant_token = self.token(tool.has_upstream).map(str::to_owned);
        if let Some(token) = self.reporting_token(tool.has_upstream) {
            effect.granted_to_executor(token);
        }
        effect.accepts_approved_args = self.input.accepts_approved_args;
        effect.idempotent = tool.idempotent;
        if effect.state()? != EffectState::Executing {
            let detail = json!({"position": effect.position, "lease_ms": effect.lease_ms});
            effect.apply(session, EffectEvent::Granted, actor, detail)?;
        }
        Ok(())
    }

    /// The row of a new call, still pending. Its id holds the step's time, so that a Commit finds
    /// its partition.
    pub(super) fn new_row(
        &self,
        session: &LockedSession,
        known: &Known,
        tool: &JudgedTool,
    ) -> EffectRow {
        let t = session.t();
        let seconds = u64::try_from(t.timestamp()).unwrap_or_default();
        let effect_id =
            Uuid::new_v7(Timestamp::from_unix(NoContext, seconds, t.timestamp_subsec_nanos()));
        EffectRow {
            effect_id,
            session_id: session.id(),
            tool_id: tool.tool_id,
            call_signature: known.signature.to_string(),
            tool_name: self.input.tool_name.clone(),
            tool_version: tool.version.clone(),
            tier: tool.tier.as_str().to_owned(),
            step_index: known.step_index,
            step_key: match &self.input.step {
                StepRef::Key(key) => Some(key.clone()),
                StepRef::Index { .. } => None,
            },
            state: EffectState::Pending.as_str().to_owned(),
            executed_at: t,
            committed_at: None,
            compensated_at: None,
            attempt: 1,
            position: None,
            asked_position: None,
            grant_token: None,
            granted_at: None,
            lease_renewed_at: None,
            lease_ms: None,
            execution_ends_at: None,
            lost_at: None,
            outcome: None,
            rejected_by: None,
            operator_said: None,
            failed_at: None,
            error: None,
            error_raw: None,
            duration_ms: None,
            idempotent: tool.idempotent,
            accepts_approved_args: self.input.accepts_approved_args,
            principal: self.input.caller.principal.clone(),
            approval_request_id: None,
            replay_count: 0,
            last_replayed_at: None,
            executor_tokens: None,
            result_by: None,
            result_text: None,
            result_raw: None,
            lease_over: false,
        }
    }

    /// The event of a new call.
    pub(super) fn record_new(&self, session: &mut LockedSession, effect: &EffectRow) {
        session.record(
            Subject::Effect,
            effect.effect_id,
            EffectEvent::Intercepted.as_str(),
            None,
            EffectState::Pending.as_str(),
            Some(effect.attempt),
            &self.input.caller.principal,
            json!({"tool": effect.tool_name, "step_index": effect.step_index}),
        );
    }

    /// Inserts the row and its signature. The constraint is the second guard behind the session's
    /// lock: when it speaks, somebody wrote without the lock, and the step is tried again.
    pub(super) async fn insert_effect(
        &self,
        tx: &mut Tenant,
        session: &LockedSession,
        effect: &EffectRow,
        chosen: Option<&Chosen>,
    ) -> Result<(), StepError> {
        let org_id = tx.org_id();
        let args = payload::store(&self.args, &self.input.args);
        let inserted: i64 = sqlx::query_scalar(include_str!("../../sql/effect_insert.sql"))
            .bind(effect.effect_id)
            .bind(org_id)
            .bind(session.id())
            .bind(session.row.session_month)
            .bind(effect.tool_id)
            .bind(&effect.call_signature)
            .bind(&effect.tool_name)
            .bind(&effect.tool_version)
            .bind(&effect.tier)
            .bind(effect.step_index)
            .bind(&effect.step_key)
            .bind(args.jsonb_text)
            .bind(args.raw)
            .bind(&effect.state)
            .bind(chosen.map(|chosen| &chosen.args_text))
            .bind(chosen.and_then(|chosen| chosen.args_raw.as_ref()))
            .bind(effect.executed_at)
            .bind(effect.position)
            .bind(effect.asked_position)
            .bind(&effect.grant_token)
            .bind(effect.granted_at)
            .bind(effect.lease_renewed_at)
            .bind(effect.lease_ms)
            .bind(effect.execution_ends_at)
            .bind(effect.idempotent)
            .bind(effect.accepts_approved_args)
            .bind(&effect.principal)
            .bind(effect.approval_request_id)
            .bind(&effect.executor_tokens)
            .fetch_one(tx.conn())
            .await?;
        if inserted != 2 {
            return Err(Refusal::new(Reason::InProgress)
                .with("call_signature", &effect.call_signature)
                .into());
        }
        Ok(())
    }

    /// The compensation of this call: the registry's binding, or one that an administrator listed.
    pub(super) async fn choose_compensation(
        &self,
        tx: &mut Tenant,
        session: &LockedSession,
        tool: &JudgedTool,
    ) -> Result<Chosen, StepError> {
        let named = self.input.compensation.clone().unwrap_or_default();
        let bound = tool.compensation_ref.as_deref().unwrap_or_default();
        let fn_name = if named.fn_name.is_empty() { bound } else { &named.fn_name };
        let is_listed = tool.allowed_compensations.iter().any(|listed| listed == fn_name);
        let may_choose = self.input.caller.role == Role::Admin;
        if fn_name != bound && !is_listed && !may_choose && crate::guard!("intercept.compensation")
        {
            return Err(Refusal::new(Reason::CompensationRefused).with("fn_name", fn_name).into());
        }
        let version = named.fn_version.as_deref().filter(|version| !version.is_empty());
        let epoch = session.row.registry_epoch;
        let bundle = registry::compensation(tx, epoch, fn_name, version).await?;
        let Some(bundle) = bundle.filter(|bundle| bundle.is_active) else {
            return Err(unusable(fn_name, "it is not registered and active"));
        };
        let template = self.template(&named, tool)?;
        self.render(&named, &template, &bundle)
    }

    /// The template of the compensation's arguments: the registration's. A request may name it
    /// again, or another one where the registration leaves that to callers.
    fn template(&self, named: &DescriptorInput, tool: &JudgedTool) -> Result<Node, StepError> {
        let given = descriptor_args(&named.args)?;
        let is_given = !matches!(&given, Node::Object(members) if members.is_empty());
        let may_name = tool.caller_args
            || self.input.caller.role.may_weaken_registry()
            || !crate::guard!("intercept.compensation_args");
        if is_given && may_name {
            return Ok(given);
        }
        let bound = tool.compensation_args.as_deref().map(|text| payload::read(text, None));
        let bound = bound.transpose()?.unwrap_or_else(Node::empty_object);
        if !is_given || canonical_value_eq(&bound, &given) {
            return Ok(bound);
        }
        let why = "the arguments of the compensation are not those that the tool is registered \
                   with (compensation_args), and it does not leave them to its callers \
                   (caller_args)";
        Err(Refusal::because(Reason::CompensationRefused, why)
            .with("tool_name", &self.input.tool_name)
            .into())
    }

    fn render(
        &self,
        named: &DescriptorInput,
        template: &Node,
        bundle: &CompensationBundle,
    ) -> Result<Chosen, StepError> {
        let fn_name = &bundle.fn_name;
        bundle
            .fn_body
            .args_placeholders_render(&self.args)
            .map_err(|error| unusable(fn_name, &error.to_string()))?;
        let rendered = template::render_descriptor(template, &self.args)
            .map_err(|error| unusable(fn_name, &error.to_string()))?;
        let text = rendered.args.to_text_exact();
        let stored = payload::store(&rendered.args, text.as_bytes());
        bundle
            .fn_body
            .comp_placeholders_render(&rendered)
            .map_err(|error| unusable(fn_name, &error.to_string()))?;
        let most = u32::try_from(limits::BACKOFF_MS_MAX).unwrap_or(u32::MAX);
        let mut max_retries = bounded(named.max_retries, bundle.max_retries, limits::RETRIES_MAX)?;
        let mut retry_backoff_ms = bounded(named.retry_backoff_ms, bundle.retry_backoff_ms, most)?;
        // An agent asks for fewer calls and longer pauses than are registered, never for more.
        if !self.input.caller.role.may_weaken_registry() && crate::guard!("intercept.retries") {
            max_retries = max_retries.min(bundle.max_retries);
            retry_backoff_ms = retry_backoff_ms.max(bundle.retry_backoff_ms);
        }
        let pending = template::pending_to_node(&rendered.pending);
        let result_templates = canonical(&pending).into_bytes();
        Ok(Chosen {
            fn_name: fn_name.clone(),
            fn_version: bundle.fn_version.clone(),
            args_text: stored.jsonb_text,
            args_raw: stored.raw,
            result_templates,
            max_retries,
            retry_backoff_ms,
        })
    }

    /// The undo entry of an attempt.
    pub(super) fn entry(
        &self,
        session: &LockedSession,
        effect: &EffectRow,
        chosen: Chosen,
    ) -> Result<UndoRow, StepError> {
        let stack_position = effect
            .position
            .ok_or_else(|| StepError::Corrupt("a grant without a position".to_owned()))?;
        Ok(UndoRow {
            undo_id: Uuid::now_v7(),
            session_id: session.id(),
            effect_id: effect.effect_id,
            attempt: effect.attempt,
            stack_position,
            compensation_fn: chosen.fn_name,
            compensation_version: chosen.fn_version,
            args_text: chosen.args_text,
            args_raw: chosen.args_raw,
            result_templates: chosen.result_templates,
            state: "pending".to_owned(),
            retry_count: 0,
            max_retries: chosen.max_retries,
            retry_backoff_ms: chosen.retry_backoff_ms,
            round: 1,
            next_try_at: None,
            interruptions: 0,
            deferred_since: None,
            skip_reason: None,
            cause: None,
            superseded_by: None,
            last_error: None,
            last_error_raw: None,
            registered_at: session.t(),
            compensated_at: None,
        })
    }

    /// The same Execute again: its first answer was lost on the way.
    pub(super) async fn same_execute(
        &self,
        tx: &mut Tenant,
        session: &LockedSession,
        effect: &EffectRow,
    ) -> Result<InterceptReply, StepError> {
        let approved = self.edited_args(tx, session, effect).await?;
        Ok(reply::execute(effect, approved))
    }
}

fn descriptor_args(bytes: &[u8]) -> Result<Node, StepError> {
    let bytes = if bytes.is_empty() { b"{}" } else { bytes };
    if bytes.len() > limits::ARGS_BYTES_MAX {
        return Err(StepError::refuse(Reason::LimitExceeded, "compensation args are too large"));
    }
    let node = parse_strict(bytes).map_err(|error| {
        StepError::refuse(Reason::InvalidArgument, format!("compensation.args: {error}"))
    })?;
    match node {
        Node::Object(_) => Ok(node),
        other => Err(StepError::refuse(
            Reason::InvalidArgument,
            format!("compensation.args must be an object, not {}", canonical(&other)),
        )),
    }
}

/// A descriptor's number, within its limit; the registry's when the descriptor says nothing.
fn bounded(wanted: Option<u32>, registered: i32, most: u32) -> Result<i32, StepError> {
    let Some(wanted) = wanted else { return Ok(registered) };
    if wanted > most {
        return Err(Refusal::new(Reason::LimitExceeded).with("limit", most).into());
    }
    i32::try_from(wanted).map_err(|_| StepError::Refused(Refusal::new(Reason::LimitExceeded)))
}

fn unusable(fn_name: &str, why: &str) -> StepError {
    Refusal::because(Reason::CompensationUnusable, format!("{fn_name}: {why}"))
        .with("fn_name", fn_name)
        .into()
}
