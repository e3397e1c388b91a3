//! Rollback: the whole session, back to a savepoint, or back to a step; or only what it would do.

use std::str::FromStr as _;

use sqlx::FromRow;
use undolog_core::{
    Tier,
    plan::{Item, Plan, Scope, next_step_index, plan},
    reason::{Reason, Refusal},
    state::{EffectState, Outcome, SessionState, UndoState},
};
use uuid::Uuid;

use super::refuse_state;
use crate::{
    error::{Decided, StepError},
    rollback::{self, RollbackRow, Start},
    session::LockedSession,
    step::{Caller, Step},
    tenant::Tenant,
    walk,
};

/// How many planned calls a dry run shows.
const SHOWN_MAX: usize = 500;

/// How far back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RollbackScope {
    /// Everything; the session ends.
    Whole,
    /// Positions at or above a savepoint.
    ToSavepoint(u32),
    /// Steps above this one.
    ToStep(u32),
}

/// Rolls a session back.
#[derive(Debug, Clone)]
pub struct Rollback {
    /// Who calls.
    pub caller: Caller,
    /// The session.
    pub session_id: Uuid,
    /// For people.
    pub reason: String,
    /// How far back.
    pub scope: RollbackScope,
    /// Committed irreversible effects in scope are accepted.
    pub allow_residue: bool,
    /// Only show what would be done.
    pub dry_run: bool,
}

/// One effect of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedItem {
    /// The effect.
    pub effect_id: Uuid,
    /// Its undo entry.
    pub undo_id: Option<Uuid>,
    /// Its place in the order.
    pub position: u32,
    /// Its step.
    pub step_index: u32,
    /// Its tool.
    pub tool_name: String,
    /// Its state.
    pub effect_state: EffectState,
    /// The compensation's name and version.
    pub compensation: Option<(String, String)>,
    /// What would be sent, for a dry run.
    pub preview: Option<Preview>,
}

/// What the walk would do about an entry, as far as it is known now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    /// `call`, `skip`, `dead_letter` or `wait`.
    pub action: &'static str,
    /// The method.
    pub method: String,
    /// The URL; secrets stay placeholders.
    pub url: String,
    /// The body as JSON text.
    pub body: Vec<u8>,
    /// Why, when it is no call.
    pub note: String,
}

/// What a rollback answers.
#[derive(Debug, Clone)]
pub struct RollbackReply {
    /// The rollback; `None` for a dry run, or when nothing had to be done.
    pub rollback_id: Option<Uuid>,
    /// The session's state.
    pub state: SessionState,
    /// The first step that nobody has used.
    pub next_step_index: u32,
    /// What is undone, in the order of the walk (dry run).
    pub plan: Vec<PlannedItem>,
    /// Committed irreversible effects in scope.
    pub residue: Vec<PlannedItem>,
    /// Approvals that the start takes away (dry run).
    pub voided_approvals: Vec<Uuid>,
    /// The plan is longer than what is shown.
    pub truncated: bool,
}

#[derive(Debug, FromRow)]
struct ItemRow {
    effect_id: Uuid,
    undo_id: Option<Uuid>,
    position: Option<i32>,
    asked_position: Option<i32>,
    step_index: i32,
    tier: String,
    state: String,
    outcome: Option<String>,
    entry_state: Option<String>,
    is_granted: bool,
    tool_name: String,
    compensation_fn: Option<String>,
    compensation_version: Option<String>,
    approval_request_id: Option<Uuid>,
}

impl Step for Rollback {
    type Reply = RollbackReply;
    const NAME: &'static str = "rollback";

    fn org_id(&self) -> Uuid {
        self.caller.org_id
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<RollbackReply>, StepError> {
        let mut session = LockedSession::require(tx, self.session_id, &self.caller).await?;
        if session.row.sealed_at.is_some() {
            return Err(Refusal::new(Reason::SessionExpired)
                .with("session_id", session.id())
                .into());
        }
        self.check_state(&session)?;
        let rows = self.rows(tx, &session).await?;
        let items = rows.iter().map(item).collect::<Result<Vec<_>, _>>()?;
        let next_position = u32::try_from(session.row.last_position + 1).unwrap_or(u32::MAX);
        let planned =
            plan(&items, self.core_scope(next_position)?, self.allow_residue, next_position)?;
        let mut reply = RollbackReply {
            rollback_id: None,
            state: session.state(),
            next_step_index: next_step_index(&items)
                .max(u32::try_from(session.row.max_step + 1).unwrap_or(1)),
            plan: Vec::new(),
            residue: shown(&planned.residue, &rows),
            voided_approvals: Vec::new(),
            truncated: planned.residue.len() > SHOWN_MAX,
        };
        if self.dry_run {
            self.preview(tx, &session, &planned, &rows, &mut reply).await?;
            return Ok(Ok(reply));
        }
        session.touched_by(&self.caller);
        let rollback = self.start(tx, &mut session, &planned).await?;
        reply.rollback_id = Some(rollback.rollback_id);
        reply.state = session.state();
        session.save(tx).await?;
        Ok(Ok(reply))
    }
}

impl Rollback {
    fn is_whole(&self) -> bool {
        self.scope == RollbackScope::Whole
    }

    /// A partial rollback gives the session back, so it needs one that is live, or one that is
    /// being rolled back partially already.
    fn check_state(&self, session: &LockedSession) -> Result<(), StepError> {
        match session.state() {
            SessionState::Active | SessionState::AwaitingApproval | SessionState::Compensating => {
                Ok(())
            }
            _ if self.is_whole() => Ok(()),
            _ => Err(refuse_state(session)),
        }
    }

    fn core_scope(&self, next_position: u32) -> Result<Scope, StepError> {
        match self.scope {
            RollbackScope::Whole => Ok(Scope::Whole),
            RollbackScope::ToStep(step) => Ok(Scope::ToStep(step)),
            RollbackScope::ToSavepoint(position) if (1..=next_position).contains(&position) => {
                Ok(Scope::FromPosition(position))
            }
            RollbackScope::ToSavepoint(position) => {
                Err(Refusal::new(Reason::SavepointNotFound).with("position", position).into())
            }
        }
    }

    /// The session's effects; a whole rollback that is no dry run does not need them.
    async fn rows(
        &self,
        tx: &mut Tenant,
        session: &LockedSession,
    ) -> Result<Vec<ItemRow>, StepError> {
        if self.is_whole() && !self.dry_run {
            return Ok(Vec::new());
        }
        let org_id = tx.org_id();
        Ok(sqlx::query_as(include_str!("../../sql/rollback_items.sql"))
            .bind(session.id())
            .bind(org_id)
            .bind(session.row.started_at)
            .fetch_all(tx.conn())
            .await?)
    }

    async fn start(
        &self,
        tx: &mut Tenant,
        session: &mut LockedSession,
        planned: &Plan,
    ) -> Result<RollbackRow, StepError> {
        // A session that was rolled back already is answered as it is.
        if session.state() == SessionState::Compensated
            && let Some(rollback) = rollback::newest(tx, session).await?
        {
            return Ok(rollback);
        }
        let wanted = Start {
            from_position: i32::try_from(planned.from_position).unwrap_or(i32::MAX),
            is_whole: self.is_whole(),
            allow_residue: self.allow_residue,
            cause: "request",
            actor: &self.caller.principal,
            reason: &self.reason,
        };
        rollback::start(tx, session, &wanted).await
    }

    async fn preview(
        &self,
        tx: &mut Tenant,
        session: &LockedSession,
        planned: &Plan,
        rows: &[ItemRow],
        reply: &mut RollbackReply,
    ) -> Result<(), StepError> {
        reply.truncated |= planned.walk.len() > SHOWN_MAX;
        reply.plan = shown(&planned.walk, rows);
        for item in &mut reply.plan {
            if let Some(undo_id) = item.undo_id {
                item.preview = walk::preview(tx, session, undo_id).await?;
            }
        }
        let voided = planned.voided.iter().filter_map(|item| find(rows, item));
        reply.voided_approvals = voided.filter_map(|row| row.approval_request_id).collect();
        Ok(())
    }
}

fn item(row: &ItemRow) -> Result<Item, StepError> {
    let corrupt = |error: undolog_core::state::UnknownName| StepError::Corrupt(error.to_string());
    Ok(Item {
        effect_id: row.effect_id,
        undo_id: row.undo_id,
        position: row.position.and_then(|p| u32::try_from(p).ok()),
        asked_position: row.asked_position.and_then(|p| u32::try_from(p).ok()),
        step_index: u32::try_from(row.step_index).unwrap_or_default(),
        tier: Tier::from_str(&row.tier).map_err(corrupt)?,
        state: EffectState::from_str(&row.state).map_err(corrupt)?,
        outcome: row.outcome.as_deref().map(Outcome::from_str).transpose().map_err(corrupt)?,
        entry: row.entry_state.as_deref().map(UndoState::from_str).transpose().map_err(corrupt)?,
        is_granted: row.is_granted,
    })
}

fn find<'a>(rows: &'a [ItemRow], item: &Item) -> Option<&'a ItemRow> {
    rows.iter().find(|row| row.effect_id == item.effect_id && row.undo_id == item.undo_id)
}

fn shown(items: &[Item], rows: &[ItemRow]) -> Vec<PlannedItem> {
    let pairs = items.iter().take(SHOWN_MAX).filter_map(|item| Some((item, find(rows, item)?)));
    pairs
        .map(|(item, row)| PlannedItem {
            effect_id: item.effect_id,
            undo_id: item.undo_id,
            position: item.position.unwrap_or_default(),
            step_index: item.step_index,
            tool_name: row.tool_name.clone(),
            effect_state: item.state,
            compensation: row.compensation_fn.clone().zip(row.compensation_version.clone()),
            preview: None,
        })
        .collect()
}
