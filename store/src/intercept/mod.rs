//! Intercept: records a tool call before it runs and decides who may run it.

mod approval;
mod attempt;
mod call;
mod compensable;
mod find;
mod reply;
mod stands;
mod together;

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde_json::json;
use undolog_core::{
    Tier,
    intercept::{Context, Decision, Found, decide},
    limits,
    reason::{Reason, Refusal},
    state::EffectEvent,
};
use uuid::Uuid;

use crate::{
    effects::{self, EffectRow},
    error::{Decided, StepError},
    payload,
    registry::{self, ToolBundle},
    rollback,
    session::LockedSession,
    step::Step,
    tenant::Tenant,
    upstream,
};
pub use call::{Intercept, InterceptInput};
use find::Known;
pub(crate) use stands::{keep_shared_entry, settle_contradiction};
pub use together::{Answers, Share, Together};

/// How a call names its place in the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepRef {
    /// The caller numbers its steps.
    Index {
        /// From 1 by convention; gaps and any order are fine.
        step_index: u32,
        /// The caller's own signature, checked against ours.
        signature: Option<String>,
    },
    /// A key of the caller's (a framework's call id); the engine numbers the step.
    Key(String),
}

/// The compensation that a request names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DescriptorInput {
    /// The function's name; empty: the registry's binding.
    pub fn_name: String,
    /// Its version; `None`: the newest active one.
    pub fn_version: Option<String>,
    /// A JSON template of its arguments.
    pub args: Vec<u8>,
    /// Calls after the first one.
    pub max_retries: Option<u32>,
    /// The first delay between calls.
    pub retry_backoff_ms: Option<u32>,
}

/// A stored or reported outcome of an execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResult {
    /// The execution succeeded.
    pub success: bool,
    /// JSON text.
    pub output: Vec<u8>,
    /// For people; empty on success.
    pub error: String,
    /// How long it took.
    pub duration_ms: u64,
}

/// How a proxy runs a granted call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamCall {
    /// JSON, as registered.
    pub endpoint: Vec<u8>,
    /// Whose secrets it may use.
    pub org_slug: String,
}

/// What Intercept answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InterceptReply {
    /// The caller runs the tool now.
    Execute {
        /// `None` for a SAFE tool, which has no row.
        effect_id: Option<Uuid>,
        /// The attempt to report on.
        attempt: u32,
        /// When the grant is lost unless it is reported or renewed.
        lease_expires_at: Option<DateTime<Utc>>,
        /// The approval that this grant spends.
        approval_id: Option<Uuid>,
        /// The approved arguments, when they are not the proposed ones.
        approved_args: Option<Vec<u8>>,
        /// How a proxy runs it.
        upstream: Option<UpstreamCall>,
    },
    /// The call committed before.
    Replay {
        /// The effect.
        effect_id: Uuid,
        /// Its stored result.
        result: StoredResult,
    },
    /// A human decides first.
    AwaitingApproval {
        /// The effect.
        effect_id: Uuid,
        /// The request.
        approval_id: Uuid,
    },
}

impl Step for Intercept {
    type Reply = InterceptReply;
    const NAME: &'static str = "intercept";

    fn org_id(&self) -> Uuid {
        self.input.caller.org_id
    }

    fn session_id(&self) -> Option<Uuid> {
        Some(self.input.session_id)
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<InterceptReply>, StepError> {
        let caller = &self.input.caller;
        let locked = LockedSession::lock(tx, self.input.session_id, caller).await?;
        if locked.is_none() {
            upstream::check_executor(tx, caller, None).await?;
        }
        let (epoch, on_unregistered) = match &locked {
            Some(session) => (session.row.registry_epoch, session.row.on_unregistered_tool.clone()),
            None => registry_epoch(tx).await?,
        };
        let mut tool = self.registered(tx, epoch).await?;
        // Before a session's id is looked at: what is refused says nothing about who holds it.
        if locked.is_none() && tool.is_none() && on_unregistered != "irreversible" {
            return Err(self.tool_not_registered());
        }
        if let Some(tool) = &tool
            && tool.tier == Tier::Safe
            && locked.is_none()
        {
            return Ok(Ok(self.with_upstream(tx, reply::safe(), Some(tool)).await?));
        }
        let mut session = match locked {
            Some(session) => session,
            None => self.implicit_session(tx, tool.as_deref()).await?,
        };
        // Another call may have been beginning the same session: what was read before the wait for
        // it is read again.
        if session.row.registry_epoch != epoch {
            tool = self.registered(tx, session.row.registry_epoch).await?;
        }
        let known = self.find(tx, &mut session).await?;
        upstream::check_executor(tx, caller, known.effect.as_ref()).await?;
        self.answer(tx, session, known, tool.as_deref()).await
    }
}

impl Intercept {
    async fn answer(
        &self,
        tx: &mut Tenant,
        mut session: LockedSession,
        mut known: Known,
        tool: Option<&ToolBundle>,
    ) -> Result<Decided<InterceptReply>, StepError> {
        self.lose_expired(tx, &mut session, &mut known).await?;
        let stands = match &mut known.effect {
            Some(effect) => stands::apply(tx, &mut session, effect).await?,
            None => None,
        };
        let tier = self.tier(&session, &known, tool)?;
        let context = Context {
            tier,
            sealed: session.row.sealed_at.is_some(),
            shared_steps: session.shares_steps(),
            late_rollback: rollback::is_late(tx, &session).await?,
        };
        let found = match stands {
            Some(found) => found,
            None => self.found(&known, tool)?,
        };
        let decision = decide(found, session.state(), context);
        if !matches!(decision, Decision::SafeExecute) {
            session.touched_by(&self.input.caller);
        }
        let reply = match decision {
            Decision::SafeExecute => {
                return Ok(Ok(self.with_upstream(tx, reply::safe(), tool).await?));
            }
            Decision::Refuse(reason) => {
                let refusal = refusal(reason, &known, &session);
                session.save(tx).await?;
                return Ok(Err(refusal));
            }
            Decision::Replay => self.replay(tx, &mut session, known.effect()?).await?,
            Decision::SameExecute => self.same_execute(tx, &session, known.effect()?).await?,
            Decision::AwaitingApproval => reply::awaiting(known.effect()?)?,
            Decision::GrantApproved => {
                let tool = self.need_tool(tx, &session, tool)?;
                match self.grant_approved(tx, &mut session, known.effect()?, &tool).await? {
                    Ok(reply) => reply,
                    Err(refusal) => {
                        session.save(tx).await?;
                        return Ok(Err(refusal));
                    }
                }
            }
            Decision::NewEffect => {
                let tool = self.need_tool(tx, &session, tool)?;
                self.new_effect(tx, &mut session, &known, &tool).await?
            }
            Decision::NewAttempt { same_entry, new_approval } => {
                let tool = self.need_tool(tx, &session, tool)?;
                let effect = known.effect()?;
                self.new_attempt(tx, &mut session, effect, &tool, same_entry, new_approval).await?
            }
        };
        let reply = self.with_upstream(tx, reply, tool).await?;
        session.save(tx).await?;
        Ok(Ok(reply))
    }

    /// Tells a proxy how it runs what it was granted.
    async fn with_upstream(
        &self,
        tx: &mut Tenant,
        mut reply: InterceptReply,
        tool: Option<&ToolBundle>,
    ) -> Result<InterceptReply, StepError> {
        if let InterceptReply::Execute { upstream: place, .. } = &mut reply
            && self.is_of_executor()
            && let Some(endpoint) = tool.and_then(|tool| tool.upstream.as_deref())
        {
            let endpoint = payload::text(endpoint, None)?;
            *place = Some(UpstreamCall { endpoint, org_slug: upstream::org_slug(tx).await? });
        }
        Ok(reply)
    }

    /// A grant whose lease ran out becomes `unknown` before anything is decided.
    async fn lose_expired(
        &self,
        tx: &mut Tenant,
        session: &mut LockedSession,
        known: &mut Known,
    ) -> Result<(), StepError> {
        if let Some(effect) = &mut known.effect
            && effect.has_live_grant()?
            && effect.lease_over
        {
            effect.lose(session, EffectEvent::LeaseLost, "system:lease")?;
            effects::save(tx, effect).await?;
        }
        Ok(())
    }

    /// The tier that the decision goes by: the registry's, never below the recorded one.
    fn tier(
        &self,
        session: &LockedSession,
        known: &Known,
        tool: Option<&ToolBundle>,
    ) -> Result<Tier, StepError> {
        let registered = tool.map(|tool| tool.tier);
        let recorded = known.effect.as_ref().map(EffectRow::tier).transpose()?;
        match registered.max(recorded) {
            Some(tier) => Ok(tier),
            None if session.row.on_unregistered_tool == "irreversible" => Ok(Tier::Irreversible),
            None => Err(self.tool_not_registered()),
        }
    }

    fn found(&self, known: &Known, tool: Option<&ToolBundle>) -> Result<Found, StepError> {
        let idempotent = tool.is_some_and(|tool| tool.idempotent);
        let has_upstream = tool.is_some_and(|tool| tool.upstream.is_some());
        find::found(known, self.token(has_upstream), idempotent)
    }

    /// The tool that a grant or a new row is judged by; its schema is checked here.
    fn need_tool(
        &self,
        tx: &Tenant,
        session: &LockedSession,
        tool: Option<&ToolBundle>,
    ) -> Result<call::JudgedTool, StepError> {
        let judged = match tool {
            Some(tool) => call::JudgedTool::registered(tool),
            None if session.row.on_unregistered_tool == "irreversible" => {
                call::JudgedTool::unregistered(&self.input)
            }
            None => return Err(self.tool_not_registered()),
        };
        if let Some(tool) = tool {
            tool.check_args(tx, &self.args)?
                .map_err(|error| StepError::refuse(Reason::ArgsInvalid, error))?;
        }
        Ok(judged)
    }

    /// The tool that the call names, as the registry knows it at this epoch.
    async fn registered(
        &self,
        tx: &mut Tenant,
        epoch: i64,
    ) -> Result<Option<Arc<ToolBundle>>, StepError> {
        let tool =
            registry::tool(tx, epoch, &self.input.tool_name, &self.input.tool_version).await?;
        match (&tool, self.input.tool_id) {
            (Some(tool), Some(tool_id)) if tool_id != tool.tool_id => {
                Err(self.tool_not_registered())
            }
            _ => Ok(tool),
        }
    }

    fn tool_not_registered(&self) -> StepError {
        Refusal::new(Reason::ToolNotRegistered)
            .with("tool_name", &self.input.tool_name)
            .with("tool_version", &self.input.tool_version)
            .into()
    }

    async fn new_effect(
        &self,
        tx: &mut Tenant,
        session: &mut LockedSession,
        known: &Known,
        tool: &call::JudgedTool,
    ) -> Result<InterceptReply, StepError> {
        if session.row.effects_total >= limits::EFFECTS_PER_SESSION_MAX as i32 {
            return Err(StepError::refuse(Reason::LimitExceeded, "the session is full"));
        }
        session.row.effects_total += 1;
        session.row.tool_calls_total += 1;
        session.row.max_step = session.row.max_step.max(known.step_index);
        session.row.last_executed_at = Some(session.t());
        session.row.numbering = Some(self.numbering().to_owned());
        match tool.tier {
            Tier::Irreversible => self.ask(tx, session, known, tool).await,
            _ => self.grant_new(tx, session, known, tool).await,
        }
    }

    async fn replay(
        &self,
        tx: &mut Tenant,
        session: &mut LockedSession,
        effect: &EffectRow,
    ) -> Result<InterceptReply, StepError> {
        let mut effect = effect.clone();
        effect.apply(
            session,
            EffectEvent::Replayed,
            &self.input.caller.principal,
            if self.served > 1 { json!({"callers": self.served}) } else { json!({}) },
        )?;
        effect.replay_count = effect.replay_count.saturating_add(self.served);
        effect.last_replayed_at = Some(session.t());
        effects::save(tx, &effect).await?;
        reply::replay(&effect)
    }
}

/// The refusal, with the ids that a caller needs to wait or to look.
fn refusal(reason: Reason, known: &Known, session: &LockedSession) -> Refusal {
    let mut refusal = Refusal::new(reason).with("session_id", session.id());
    if let Some(effect) = &known.effect {
        refusal = refusal.with("effect_id", effect.effect_id).with("effect_state", &effect.state);
        if let Some(approval_id) = effect.approval_request_id {
            refusal = refusal.with("approval_id", approval_id);
        }
    }
    refusal
}

/// The organisation's registry number and its policy for tools that it does not know.
async fn registry_epoch(tx: &mut Tenant) -> Result<(i64, String), StepError> {
    let org_id = tx.org_id();
    let found: Option<(i64, String)> = sqlx::query_as(
        "SELECT registry_epoch, on_unregistered_tool FROM undolog_orgs WHERE org_id = $1",
    )
    .bind(org_id)
    .fetch_optional(tx.conn())
    .await?;
    found.ok_or_else(|| StepError::refuse(Reason::OrgNotFound, "the organisation is gone"))
}
