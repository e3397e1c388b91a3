//! Fail: records a failed execution and, by default, fails the session and starts its rollback.

use serde_json::json;
use undolog_core::{
    commit::Scope,
    fail::{FailAction, FailFound, LiveRollback, decide},
    json::show_text,
    limits,
    reason::{Reason, Refusal},
    state::{EffectEvent, FailedEffect, Outcome, SessionEvent, SkipReason},
};
use uuid::Uuid;

use super::{admit, attempt_of, heard, late};
use crate::{
    dead_letters,
    effects::{self, EffectRow},
    error::{Decided, StepError},
    intercept,
    lanes::Lane,
    rollback::{self, RollbackRow, Start},
    session::LockedSession,
    step::{Caller, Step},
    tenant::Tenant,
    undo::{self, UndoRow},
};

/// Records a failed execution.
#[derive(Debug, Clone)]
pub struct Fail {
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
    /// For people.
    pub error: String,
    /// What the caller knows of the effect on the world.
    pub effect: FailedEffect,
    /// What this failure does to the session: `rollback`, `continue`, or empty for the session's
    /// policy.
    pub on_tool_failure: String,
}

impl Step for Fail {
    type Reply = ();
    const NAME: &'static str = "fail";
    const LANE: Lane = Lane::Report;

    fn org_id(&self) -> Uuid {
        self.caller.org_id
    }

    fn session_id(&self) -> Option<Uuid> {
        Some(self.session_id)
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<()>, StepError> {
        if self.error.len() > limits::KEPT_RESPONSE_BYTES {
            return Err(Refusal::because(Reason::LimitExceeded, "the error text is too large")
                .with("limit_bytes", limits::KEPT_RESPONSE_BYTES)
                .into());
        }
        let continues = self.continues()?;
        let mut session = LockedSession::require(tx, self.session_id, &self.caller).await?;
        session.touched_by(&self.caller);
        let mut effect = effects::require(tx, &session, self.effect_id).await?;
        let attempt = attempt_of(&effect, self.attempt)?;
        let reporter = (&self.caller, self.executor_token.as_str());
        if let Err(refusal) = admit(tx, &mut session, &mut effect, attempt, reporter).await? {
            session.save(tx).await?;
            return Ok(Err(refusal));
        }
        let mut entry = undo::of_attempt(tx, effect.effect_id, attempt).await?;
        let position = entry.as_ref().map(|entry| entry.stack_position).or(effect.position);
        let scoped = rollback::scoped(tx, &session, position).await?;
        let live = match (scoped.scope(), &scoped.live) {
            (Scope::Live, _) => LiveRollback::Covers,
            (_, Some(_)) => LiveRollback::Above,
            (_, None) => LiveRollback::None,
        };
        let mut rollback = scoped.live;
        let found = FailFound {
            says: self.effect,
            effect: effect.state()?,
            tier: effect.tier()?,
            granted: effect.granted_at.is_some(),
            is_current: attempt == effect.attempt,
            has_result: effect.result_text.is_some(),
            entry: entry.as_ref().map(UndoRow::state).transpose()?,
            dead_letter: late::dead_letter(tx, effect.effect_id, None).await?,
            rollback: live,
            continues: continues.unwrap_or_else(|| session.row.on_tool_failure == "continue"),
            session: session.state(),
        };
        let plan = decide(&found);
        for action in &plan.actions {
            let rows = Rows { effect: &mut effect, entry: &mut entry, rollback: &mut rollback };
            self.act(tx, &mut session, rows, *action, attempt).await?;
        }
        let reply = plan.reply.map(|reason| heard(reason, &session, &effect));
        session.save(tx).await?;
        Ok(reply.map_or(Ok(()), Err))
    }
}

/// The rows that a Fail works on.
struct Rows<'a> {
    effect: &'a mut EffectRow,
    entry: &'a mut Option<UndoRow>,
    rollback: &'a mut Option<RollbackRow>,
}

impl Fail {
    /// The policy of this call; `None`: the session's own.
    fn continues(&self) -> Result<Option<bool>, StepError> {
        match self.on_tool_failure.as_str() {
            "" => Ok(None),
            "rollback" => Ok(Some(false)),
            "continue" => Ok(Some(true)),
            _ => Err(StepError::refuse(
                Reason::InvalidArgument,
                "on_tool_failure must be rollback or continue",
            )),
        }
    }

    async fn act(
        &self,
        tx: &mut Tenant,
        session: &mut LockedSession,
        rows: Rows<'_>,
        action: FailAction,
        attempt: i32,
    ) -> Result<(), StepError> {
        let actor = self.caller.principal.as_str();
        match action {
            FailAction::Fail(outcome) => {
                let event = match outcome {
                    Outcome::NotApplied => EffectEvent::FailedNotApplied,
                    Outcome::MaybeApplied => EffectEvent::FailedMaybeApplied,
                };
                rows.effect.apply(session, event, actor, json!({}))?;
                rows.effect.outcome = Some(outcome.as_str().to_owned());
                rows.effect.failed_at = Some(session.t());
                rows.effect.end_grant();
                self.keep_error(rows.effect);
                effects::save(tx, rows.effect).await
            }
            FailAction::MarkUnknown => {
                rows.effect.lose(session, EffectEvent::ReportedUnknown, actor)?;
                self.keep_error(rows.effect);
                effects::save(tx, rows.effect).await
            }
            FailAction::SkipEntry => {
                if let Some(entry) = rows.entry
                    && !intercept::keep_shared_entry(tx, rows.effect, entry).await?
                {
                    entry.skip(session, SkipReason::NotApplied, actor)?;
                    undo::save(tx, entry).await?;
                }
                Ok(())
            }
            FailAction::CloseDeadLetter => {
                for letter in late::letters(tx, rows.effect.effect_id, None).await? {
                    let id = letter.dead_letter_id;
                    dead_letters::close(tx, session, id, actor, "not_applied", None).await?;
                }
                Ok(())
            }
            FailAction::FailSession => self.fail_session(tx, session, rows.effect).await,
            FailAction::MakeDue => match rows.rollback {
                Some(live) => rollback::make_due(tx, session, live, actor).await,
                None => Ok(()),
            },
            FailAction::Event(event) => {
                rows.effect.apply(session, event, actor, json!({"attempt": attempt}))
            }
        }
    }

    fn keep_error(&self, effect: &mut EffectRow) {
        let (shown, raw) = show_text(&self.error);
        effect.error = Some(shown);
        effect.error_raw = raw;
    }

    /// The documented consequence: the session fails and its undo walk begins.
    async fn fail_session(
        &self,
        tx: &mut Tenant,
        session: &mut LockedSession,
        effect: &EffectRow,
    ) -> Result<(), StepError> {
        let actor = self.caller.principal.as_str();
        let detail = json!({"cause": "tool_failed", "effect_id": effect.effect_id});
        // While a partial rollback of later calls runs, the failure widens it.
        if session.state().is_live() {
            session.apply(SessionEvent::Failed, actor, detail)?;
        }
        session.fail_because(&self.error);
        let wanted = Start::whole("tool_failed", actor, "a tool failed");
        rollback::start(tx, session, &wanted).await?;
        Ok(())
    }
}
