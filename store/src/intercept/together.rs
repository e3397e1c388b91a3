//! One call that many callers ask for at the same moment: one step answers all of them, each as a
//! step of its own would.

use undolog_core::reason::{Reason, Refusal};
use uuid::Uuid;

use super::{Intercept, InterceptInput, InterceptReply};
use crate::{
    effects::executed_between,
    error::{Decided, StepError},
    step::Step,
    tenant::Tenant,
};

/// Callers of the same call. The first one is who a grant goes to.
#[derive(Debug)]
pub struct Together {
    first: Intercept,
    others: Vec<Intercept>,
}

/// What the first caller hears, and what that means for each of the others.
#[derive(Debug)]
pub struct Answers {
    /// The first caller's answer.
    pub first: Decided<InterceptReply>,
    /// The others', in the order in which they were given.
    pub others: Vec<Share>,
}

/// What one of the others hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Share {
    /// What the first one hears.
    Same,
    /// The first one was granted the call just now.
    Other(Refusal),
    /// The grant that is out can be its own: it asks by itself.
    Alone,
}

impl Intercept {
    /// Whether another caller asks for exactly this, whatever tokens the two hold.
    #[must_use]
    pub fn asks_the_same(&self, other: &Self) -> bool {
        // Taken apart by name, so that no new field is forgotten here.
        let InterceptInput {
            caller,
            session_id,
            tool_id,
            tool_name,
            tool_version,
            step,
            args,
            compensation,
            agent_context,
            grant_token: _,
            accepts_approved_args,
            heartbeats,
            executor_token,
            reports_with_token,
        } = &self.input;
        let theirs = &other.input;
        *caller == theirs.caller
            && *session_id == theirs.session_id
            && *tool_id == theirs.tool_id
            && *tool_name == theirs.tool_name
            && *tool_version == theirs.tool_version
            && *step == theirs.step
            && *args == theirs.args
            && *compensation == theirs.compensation
            && *agent_context == theirs.agent_context
            && *accepts_approved_args == theirs.accepts_approved_args
            && *heartbeats == theirs.heartbeats
            && *reports_with_token == theirs.reports_with_token
            // How a proxy runs the call is told only to those who send one.
            && executor_token.is_some() == theirs.executor_token.is_some()
    }
}

impl Together {
    /// Callers that ask the same as the first one.
    #[must_use]
    pub fn new(mut first: Intercept, others: Vec<Intercept>) -> Self {
        first.served = i16::try_from(others.len()).unwrap_or(i16::MAX).saturating_add(1);
        Self { first, others }
    }

    /// The others after a grant to the first: who holds its token hears of the same grant.
    fn after_grant(&self, reply: &InterceptReply) -> Vec<Share> {
        let InterceptReply::Execute { effect_id: Some(effect_id), approval_id, upstream, .. } =
            reply
        else {
            return vec![Share::Same; self.others.len()];
        };
        let token = self.first.token(upstream.is_some());
        let state = if approval_id.is_some() { "approved" } else { "executing" };
        let mut refusal = Refusal::new(Reason::InProgress)
            .with("session_id", self.first.input.session_id)
            .with("effect_id", effect_id)
            .with("effect_state", state);
        if let Some(approval_id) = approval_id {
            refusal = refusal.with("approval_id", approval_id);
        }
        let share = |other: &Intercept| {
            let is_same = token.is_some() && other.token(upstream.is_some()) == token;
            if is_same { Share::Same } else { Share::Other(refusal.clone()) }
        };
        self.others.iter().map(share).collect()
    }

    /// The others when somebody holds the grant: it can be one of them.
    async fn beside_grant(
        &self,
        tx: &mut Tenant,
        refusal: &Refusal,
    ) -> Result<Vec<Share>, StepError> {
        let effect_id = refusal.metadata.iter().find(|(key, _)| *key == "effect_id");
        let effect_id = effect_id.and_then(|(_, id)| Uuid::parse_str(id).ok());
        let Some((effect_id, (from, to))) =
            effect_id.and_then(|id| Some((id, executed_between(id)?)))
        else {
            return Ok(vec![Share::Same; self.others.len()]);
        };
        let org_id = tx.org_id();
        let held: Option<String> = sqlx::query_scalar(
            "SELECT grant_token FROM undolog_effect_log WHERE effect_id = $1 AND org_id = $2 \
               AND executed_at >= $3 AND executed_at < $4",
        )
        .bind(effect_id)
        .bind(org_id)
        .bind(from)
        .bind(to)
        .fetch_optional(tx.conn())
        .await?
        .flatten();
        let share = |other: &Intercept| {
            let is_own = held.is_some()
                && [true, false].into_iter().any(|by| other.token(by) == held.as_deref());
            if is_own { Share::Alone } else { Share::Same }
        };
        Ok(self.others.iter().map(share).collect())
    }
}

impl Step for Together {
    type Reply = Answers;
    const NAME: &'static str = "intercept_together";

    fn org_id(&self) -> Uuid {
        self.first.org_id()
    }

    fn session_id(&self) -> Option<Uuid> {
        self.first.session_id()
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<Answers>, StepError> {
        let first = self.first.run(tx).await?;
        let others = match &first {
            Ok(reply) => self.after_grant(reply),
            Err(refusal) if refusal.reason == Reason::InProgress => {
                self.beside_grant(tx, refusal).await?
            }
            Err(_) => vec![Share::Same; self.others.len()],
        };
        Ok(Ok(Answers { first, others }))
    }
}
