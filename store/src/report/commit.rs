//! Commit: evidence, recorded in every session state.

use undolog_core::{
    limits,
    reason::{Reason, Refusal},
    state::{EffectEvent, FailedEffect},
};
use uuid::Uuid;

use super::{
    Fail, admit, attempt_of,
    evidence::{self, Evidence},
    heard,
};
use crate::{
    effects,
    error::{Decided, StepError},
    intercept::StoredResult,
    lanes::Lane,
    payload,
    session::LockedSession,
    step::{Caller, Step},
    tenant::Tenant,
};

/// Who closes a dead letter when the evidence arrives.
const EVIDENCE: &str = "system:late_commit";

/// Records the outcome of an execution.
#[derive(Debug, Clone)]
pub struct Commit {
    /// Who reports.
    pub caller: Caller,
    /// The session.
    pub session_id: Uuid,
    /// The effect.
    pub effect_id: Uuid,
    /// The attempt; 0: the newest.
    pub attempt: u32,
    /// What proves that the report is of the proxy that made the call; empty: of somebody else.
    pub executor_token: String,
    /// The outcome; `success = false` is a Fail in every respect.
    pub result: StoredResult,
}

impl Step for Commit {
    type Reply = ();
    const NAME: &'static str = "commit";
    const LANE: Lane = Lane::Report;

    fn org_id(&self) -> Uuid {
        self.caller.org_id
    }

    fn session_id(&self) -> Option<Uuid> {
        Some(self.session_id)
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<()>, StepError> {
        if !self.result.success {
            return self.as_fail().run(tx).await;
        }
        if self.result.output.len() > limits::RESULT_BYTES_MAX {
            return Err(Refusal::because(Reason::LimitExceeded, "the result is too large")
                .with("limit_bytes", limits::RESULT_BYTES_MAX)
                .into());
        }
        let (output, bytes) = payload::parse_output(&self.result.output).map_err(|error| {
            StepError::refuse(Reason::InvalidArgument, format!("result.output: {error}"))
        })?;
        let mut session = LockedSession::require(tx, self.session_id, &self.caller).await?;
        session.touched_by(&self.caller);
        let mut effect = effects::require(tx, &session, self.effect_id).await?;
        let attempt = attempt_of(&effect, self.attempt)?;
        let reporter = (&self.caller, self.executor_token.as_str());
        let by = match admit(tx, &mut session, &mut effect, attempt, reporter).await? {
            Ok(by) => by,
            Err(refusal) => {
                session.save(tx).await?;
                return Ok(Err(refusal));
            }
        };
        let evidence = Evidence {
            by,
            actor: &self.caller.principal,
            closed_by: EVIDENCE,
            event: EffectEvent::Committed,
            operator_said: None,
            note: None,
            output,
            bytes,
            duration_ms: i64::try_from(self.result.duration_ms).ok(),
        };
        let recorded = evidence::record(tx, &mut session, effect, attempt, evidence).await?;
        let reply = recorded.reply.map(|reason| heard(reason, &session, &recorded.effect));
        session.save(tx).await?;
        Ok(reply.map_or(Ok(()), Err))
    }
}

impl Commit {
    fn as_fail(&self) -> Fail {
        Fail {
            caller: self.caller.clone(),
            session_id: self.session_id,
            effect_id: self.effect_id,
            attempt: self.attempt,
            executor_token: self.executor_token.clone(),
            error: self.result.error.clone(),
            effect: FailedEffect::MaybeApplied,
            on_tool_failure: String::new(),
        }
    }
}
