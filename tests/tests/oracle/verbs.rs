//! Each command as a step of the store's.

use chrono::Duration;
use serde_json::json;
use undolog_core::{role::Role, state::FailedEffect};
use undolog_store::{
    approvals::{Approve, LapseApproval, Reject, Revoke, TimeOut},
    intercept::{Intercept, InterceptInput, InterceptReply, StepRef, StoredResult},
    operate::{
        Resolution, ResolveDeadLetter, ResolveEffect, RetryDeadLetter, SettleSession,
        SkipDeadLetter,
    },
    report::{Commit, Fail},
    service,
    sessions::{Complete, FailSession, Heartbeat, Rollback, RollbackScope, Savepoint},
    sweeps::{self, FailLost, LoseGrants, Verdict as Lost},
};
use uuid::Uuid;

use crate::{
    act::{Act, Verb},
    lane::caller,
    model::{Answer, Command, FailEffect, SessionState, Verdict},
    session::Session,
};

/// Longer than a claim, a retry's backoff and an endpoint's rest.
const WAIT: Duration = Duration::minutes(2);
/// A step that went ahead and came back is seen by the second look.
const WAITS: u32 = 2;

/// Everything that the driver does is told to the oracle like this.
pub(crate) type Told = Option<(Command, Answer)>;

impl Session<'_> {
    /// Runs one command. `None`: it means nothing here.
    pub(crate) async fn run(&mut self, act: &Act) -> Told {
        let [first, second, _] = act.args;
        let call = act.call();
        match act.verb {
            Verb::Intercept => self.intercept(call, second).await,
            Verb::Commit => self.commit(call, second, act.args[2]).await,
            Verb::Fail => self.fail(call, second, act.args[2]).await,
            Verb::Heartbeat => self.heartbeat(call, second).await,
            Verb::Savepoint => self.savepoint().await,
            Verb::RollbackTo => self.rollback_to(first, second != 0).await,
            Verb::RollbackToStep => {
                let step = u32::try_from(first).ok()?;
                let allow_residue = second != 0;
                let answer = self.rollback(RollbackScope::ToStep(step), allow_residue).await;
                Some((Command::RollbackToStep { step: first, allow_residue }, answer))
            }
            Verb::RollbackWhole => {
                let answer = self.rollback(RollbackScope::Whole, false).await;
                Some((Command::RollbackWhole, answer))
            }
            Verb::Approve
            | Verb::Reject
            | Verb::ApprovalTimeout
            | Verb::Revoke
            | Verb::ApprovalLapses => self.decide(act.verb, call).await,
            Verb::GrantLeaseExpires => self.grant_lease_expires(call).await,
            Verb::SessionLeaseLost => self.session_lease_lost().await,
            Verb::Complete | Verb::FailSession => self.finish(act.verb, first != 0).await,
            Verb::Retry | Verb::Skip | Verb::Resolve => {
                self.settle_letter(act.verb, first, second != 0).await
            }
            Verb::ResolveUnknown => self.resolve_unknown(call, second != 0).await,
            Verb::Settle => {
                let (caller, session_id, note) = (self.operator(), self.id, "known".into());
                let step = SettleSession { caller, session_id, note };
                let outcome = self.lane.engine.run(step).await;
                Some((Command::SessionSettle, self.heard(outcome, |_| Answer::Ok)))
            }
            Verb::Clock => {
                self.lane.step_clock(Duration::minutes(first));
                Some((Command::ClockStep { minutes: first }, Answer::Ok))
            }
            Verb::TimePasses => {
                self.time_passes().await;
                let answer = match self.trouble {
                    Some(_) => Answer::refused("INTERNAL"),
                    None => Answer::Ok,
                };
                Some((Command::ClockStep { minutes: 0 }, answer))
            }
            Verb::Claim
            | Verb::Step
            | Verb::KillBeforeCall
            | Verb::KillAfterCall
            | Verb::LateReport => self.work(act.verb, first).await,
        }
    }

    async fn intercept(&mut self, call: u32, token: i64) -> Told {
        let (name, tool, step) = self.plan.tool(call)?;
        let token = match token {
            0 => 0,
            1 if self.tokens.contains_key(&call) => self.tokens[&call],
            _ => {
                self.tokens_made += 1;
                self.tokens_made
            }
        };
        let input = InterceptInput {
            caller: self.agent(),
            session_id: self.id,
            tool_id: None,
            tool_name: name.into(),
            tool_version: String::new(),
            step: StepRef::Index { step_index: step, signature: None },
            args: json!({"call": call}).to_string().into_bytes(),
            compensation: None,
            agent_context: Vec::new(),
            grant_token: (token != 0).then(|| format!("token-{token}")),
            accepts_approved_args: false,
            heartbeats: false,
            executor_token: None,
            reports_with_token: false,
        };
        let outcome = match Intercept::new(input) {
            Ok(step) => self.lane.engine.run(step).await,
            Err(error) => Err(error),
        };
        let answer = self.heard(outcome, intercepted);
        if let Answer::Execute { attempt } = answer {
            self.granted.insert(call, attempt);
            self.tokens.insert(call, token);
        }
        Some((Command::Intercept { call, step: step.into(), tool, token }, answer))
    }

    fn effect(&self, call: u32) -> Option<Uuid> {
        self.rows.effects.get(&call).map(|effect| effect.0)
    }

    /// The attempt that a report names. 0, the newest, must not mean one that waits for an
    /// approval.
    fn named(&self, call: u32, attempt: i64) -> Option<u32> {
        let granted = *self.granted.get(&call)?;
        let row = self.rows.observed.effect(call)?.attempt;
        let attempt = u32::try_from(attempt).ok().filter(|n| *n <= granted)?;
        Some(if attempt == 0 && row != granted { granted } else { attempt })
    }

    /// A result tells which call and attempt it is of.
    fn value(&self, call: u32, attempt: u32, other: bool) -> i64 {
        let number = if attempt == 0 { self.granted[&call] } else { attempt };
        i64::from(call) * 1000 + i64::from(number) * 10 + i64::from(other)
    }

    async fn commit(&mut self, call: u32, attempt: i64, other: i64) -> Told {
        let (effect_id, attempt) = (self.effect(call)?, self.named(call, attempt)?);
        let value = self.value(call, attempt, other != 0);
        let result = StoredResult {
            success: true,
            output: output(value),
            error: String::new(),
            duration_ms: 7,
        };
        let (caller, session_id) = (self.agent(), self.id);
        let step = Commit {
            executor_token: String::new(),
            caller,
            session_id,
            effect_id,
            attempt,
            result,
        };
        let outcome = self.lane.engine.run(step).await;
        let answer = self.heard(outcome, |()| Answer::Ok);
        Some((Command::Commit { call, attempt, value }, answer))
    }

    async fn fail(&mut self, call: u32, attempt: i64, says: i64) -> Told {
        let (effect_id, attempt) = (self.effect(call)?, self.named(call, attempt)?);
        let (effect, told) = match says {
            0 => (FailedEffect::NotApplied, FailEffect::NotApplied),
            1 => (FailedEffect::MaybeApplied, FailEffect::MaybeApplied),
            _ => (FailedEffect::Unknown, FailEffect::Unknown),
        };
        let (caller, session_id, error) = (self.agent(), self.id, "it broke".into());
        let step = Fail {
            executor_token: String::new(),
            caller,
            session_id,
            effect_id,
            attempt,
            error,
            effect,
            on_tool_failure: String::new(),
        };
        let outcome = self.lane.engine.run(step).await;
        let answer = self.heard(outcome, |()| Answer::Ok);
        Some((Command::Fail { call, attempt, effect: told }, answer))
    }

    async fn heartbeat(&mut self, call: u32, attempt: i64) -> Told {
        let (effect_id, attempt) = (self.effect(call)?, self.named(call, attempt)?);
        let (caller, session_id) = (self.agent(), self.id);
        let step = Heartbeat { caller, session_id, grants: vec![(effect_id, attempt)] };
        let outcome = self.lane.engine.run(step).await;
        Some((Command::Heartbeat { call, attempt }, self.heard(outcome, |_| Answer::Ok)))
    }

    async fn savepoint(&mut self) -> Told {
        let step = Savepoint { caller: self.agent(), session_id: self.id, name: "s".into() };
        let outcome = self.lane.engine.run(step).await;
        let answer = self.heard(outcome, |taken| Answer::At(taken.position.into()));
        if let Answer::At(position) = answer {
            self.savepoints.push(position);
        }
        Some((Command::Savepoint, answer))
    }

    async fn rollback_to(&mut self, savepoint: i64, allow_residue: bool) -> Told {
        let to = *self.savepoints.get(usize::try_from(savepoint).ok()?)?;
        let scope = RollbackScope::ToSavepoint(u32::try_from(to).ok()?);
        let answer = self.rollback(scope, allow_residue).await;
        Some((Command::RollbackPartial { to, allow_residue }, answer))
    }

    async fn rollback(&mut self, scope: RollbackScope, allow_residue: bool) -> Answer {
        let step = Rollback {
            page_token: String::new(),
            caller: self.agent(),
            session_id: self.id,
            reason: "test".into(),
            scope,
            allow_residue,
            dry_run: false,
        };
        let outcome = self.lane.engine.run(step).await;
        self.heard(outcome, |_| Answer::Ok)
    }

    async fn decide(&mut self, verb: Verb, call: u32) -> Told {
        let approval_id = self.rows.effects.get(&call)?.1?;
        let (org_id, boss) = (self.org, caller(self.org, Role::Approver, "boss"));
        let (engine, actor, note) = (&self.lane.engine, "Ada".to_owned(), "so".to_owned());
        Some(match verb {
            Verb::Approve => {
                let step = Approve {
                    caller: boss,
                    approval_id,
                    actor,
                    approved_args: None,
                    note,
                    actor_ip: None,
                };
                let outcome = engine.run(step).await;
                (Command::Approve { call }, self.heard(outcome, |_| Answer::Ok))
            }
            Verb::Reject => {
                let step = Reject { caller: boss, approval_id, actor, note, actor_ip: None };
                let outcome = engine.run(step).await;
                (Command::Reject { call }, self.heard(outcome, |_| Answer::Ok))
            }
            Verb::Revoke => {
                let outcome = engine.run(Revoke { caller: boss, approval_id, note }).await;
                (Command::Revoke { call }, self.heard(outcome, |_| Answer::Ok))
            }
            Verb::ApprovalTimeout => {
                // What times out in a session that is over is never approved; the oracle does not
                // model that.
                let state = self.rows.observed.session;
                let over = !state.is_live() && state != SessionState::Compensating;
                if over && self.plan.config.auto_approve {
                    return None;
                }
                self.tick().await;
                self.approval_sql(approval_id, "timeout_at").await;
                let outcome = self.lane.worker.run(TimeOut { org_id, approval_id }).await;
                let answer = self.done(outcome.map(|state| state.is_some()));
                (Command::ApprovalTimeout { call }, answer)
            }
            _ => {
                self.tick().await;
                self.approval_sql(approval_id, "resolved_at").await;
                let outcome = self.lane.worker.run(LapseApproval { org_id, approval_id }).await;
                (Command::ApprovalLapses { call }, self.done(outcome))
            }
        })
    }

    /// Puts a time of an approval two days back.
    async fn approval_sql(&self, approval_id: Uuid, column: &str) {
        let sql = format!(
            "UPDATE undolog_approval_requests SET {column} = now() - interval '2 days' \
             WHERE approval_request_id = $1 AND {column} IS NOT NULL"
        );
        sqlx::query(&sql).bind(approval_id).execute(self.lane.pool()).await.expect(&sql);
    }

    /// Our service runs, and has run for long.
    async fn tick(&self) {
        self.lane
            .sql(
                "INSERT INTO undolog_service VALUES ('engine', now(), now() - interval '2 days') \
                 ON CONFLICT (service) DO UPDATE SET last_tick_at = now(), \
                 resumed_at = now() - interval '2 days'",
            )
            .await;
    }

    async fn grant_lease_expires(&mut self, call: u32) -> Told {
        let effect_id = self.effect(call)?;
        if !self.rows.observed.effect(call)?.live_grant {
            return None;
        }
        self.tick().await;
        sqlx::query(
            "UPDATE undolog_effect_log SET lease_renewed_at = now() - interval '1 day' \
             WHERE effect_id = $1",
        )
        .bind(effect_id)
        .execute(self.lane.pool())
        .await
        .expect("an old grant");
        let (org_id, session_id) = (self.org, self.id);
        let outcome = self.lane.worker.run(LoseGrants { org_id, session_id }).await;
        let answer = self.done(outcome.map(|lost| lost > 0));
        Some((Command::GrantLeaseExpires { call }, answer))
    }

    async fn session_lease_lost(&mut self) -> Told {
        self.tick().await;
        self.sql(
            "UPDATE undolog_sessions SET last_rpc_at = now() - interval '2 days', \
             lease_renewed_at = now() - interval '2 days', lease_hold_until = NULL \
             WHERE session_id = $1",
        )
        .await;
        let step = FailLost { org_id: self.org, session_id: self.id, may_fail: true };
        let outcome = self.lane.worker.run(step).await;
        let answer = self.done(outcome.map(|verdict| verdict == Lost::Failed));
        Some((Command::SessionLeaseLost, answer))
    }

    async fn finish(&mut self, verb: Verb, flag: bool) -> Told {
        let (caller, session_id) = (self.agent(), self.id);
        if verb == Verb::Complete {
            let outcome =
                self.lane.engine.run(Complete { caller, session_id, accept_unknown: flag }).await;
            let answer = self.heard(outcome, |_| Answer::Ok);
            return Some((Command::Complete { accept_unknown: flag }, answer));
        }
        let step = FailSession { caller, session_id, reason: "so".into(), rollback: flag };
        let outcome = self.lane.engine.run(step).await;
        let answer = self.heard(outcome, |_| Answer::Ok);
        Some((Command::FailSession { rollback: flag }, answer))
    }

    async fn settle_letter(&mut self, verb: Verb, number: i64, fresh_key: bool) -> Told {
        let letter = self.rows.observed.letters.get(usize::try_from(number).ok()?)?.id;
        let (caller, dead_letter_id) = (self.operator(), self.ids.id(letter)?);
        let (engine, note) = (&self.lane.engine, "by hand".to_owned());
        let (command, outcome) = match verb {
            Verb::Retry => {
                let step = RetryDeadLetter { caller, dead_letter_id, args: None, fresh_key, note };
                (Command::OperatorRetry { letter }, engine.run(step).await)
            }
            Verb::Skip => {
                let step = SkipDeadLetter { caller, dead_letter_id, reason: note };
                (Command::OperatorSkip { letter }, engine.run(step).await)
            }
            _ => {
                let step = ResolveDeadLetter { caller, dead_letter_id, note };
                (Command::OperatorResolve { letter }, engine.run(step).await)
            }
        };
        Some((command, self.heard(outcome, |_| Answer::Ok)))
    }

    async fn resolve_unknown(&mut self, call: u32, applied: bool) -> Told {
        let effect_id = self.effect(call)?;
        let value = self.value(call, self.named(call, 0)?, false);
        let (resolve, verdict) = if applied {
            (Resolution::Committed { output: output(value) }, Verdict::Committed(value))
        } else {
            (Resolution::NotApplied, Verdict::NotApplied)
        };
        let (caller, session_id, note) = (self.operator(), self.id, "asked".into());
        let step = ResolveEffect { caller, session_id, effect_id, resolve, note };
        let outcome = self.lane.engine.run(step).await;
        let answer = self.heard(outcome, |_| Answer::Ok);
        Some((Command::OperatorResolveUnknown { call, verdict }, answer))
    }

    /// Whatever waits for a time waits for as long as it meant to: the clock goes on. What lies
    /// ahead because the clock stepped back is the product's to mend: engines tick, and workers
    /// sweep.
    async fn time_passes(&mut self) {
        for _ in 0..WAITS {
            self.lane.step_clock(WAIT);
            let ticked = service::tick(&self.lane.engine, "engine").await.map(drop);
            let swept = sweeps::reaper(&self.lane.worker).await.map(drop);
            if let Err(error) = ticked.and(swept) {
                self.trouble = Some(error.to_string());
            }
        }
        self.lane.step_clock(WAIT);
    }
}

fn output(value: i64) -> Vec<u8> {
    json!({"value": value}).to_string().into_bytes()
}

fn intercepted(reply: InterceptReply) -> Answer {
    match reply {
        InterceptReply::Execute { attempt, .. } => Answer::Execute { attempt },
        InterceptReply::Replay { result, .. } => {
            let output: serde_json::Value =
                serde_json::from_slice(&result.output).unwrap_or_default();
            Answer::Replay { value: output["value"].as_i64().unwrap_or_default() }
        }
        InterceptReply::AwaitingApproval { .. } => Answer::AwaitingApproval,
    }
}
