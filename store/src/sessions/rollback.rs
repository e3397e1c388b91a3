//! Rollback: the whole session, back to a savepoint, or back to a step; or only what it would do.

use std::{collections::HashMap, str::FromStr as _};

use serde::{Deserialize, Serialize};
use sqlx::FromRow;
use undolog_core::{
    Tier,
    limits::{PAGE_MAX, ROW_BYTES_MAX, TEXT_BYTES_MAX},
    plan::{Item, Plan, Scope, next_step_index, plan},
    reason::{Reason, Refusal},
    role::Role,
    state::{EffectState, Outcome, SessionState, UndoState},
};
use uuid::Uuid;

use super::refuse_state;
use crate::{
    error::{Decided, StepError},
    payload::refuse_long,
    read::page::{PAGE_BYTES_MAX, Paging, to_token},
    rollback::{self, RollbackRow, Start},
    session::LockedSession,
    step::{Caller, Step},
    tenant::Tenant,
    walk,
};

/// How many planned calls, and as many irreversible effects, a page of a dry run shows.
const SHOWN_MAX: usize = PAGE_MAX as usize;
/// How many approvals a page of a dry run shows.
const VOIDED_MAX: usize = 5_000;
/// URLs and notes of a page; one call always.
const TEXT_BYTES: usize = 512 * 1024;

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
    /// Where the page before ended, of a dry run; empty: from the start.
    pub page_token: String,
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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preview {
    /// `call`, `skip`, `dead_letter` or `wait`.
    pub action: &'static str,
    /// The method.
    pub method: String,
    /// The URL; secrets stay placeholders.
    pub url: String,
    /// The body as it is sent, but for its secrets.
    pub body: Vec<u8>,
    /// The body's content type; empty: there is no body.
    pub content_type: String,
    /// Why, when it is no call.
    pub note: String,
    /// What is empty here because it is too large.
    pub left_out: Vec<&'static str>,
}

impl Preview {
    /// Leaves out what is too long to stand in a list, and the body when there is no room for it.
    pub fn fit(&mut self, body_bytes_max: usize) {
        let texts = [("url", &mut self.url), ("note", &mut self.note)];
        for (name, text) in texts.into_iter().filter(|(_, text)| text.len() > TEXT_BYTES_MAX) {
            text.clear();
            self.left_out.push(name);
        }
        if self.body.len() > body_bytes_max && crate::guard!("preview.body_left_out") {
            self.body.clear();
            self.left_out.push("body");
        }
    }
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
    /// The token of a dry run's next page; empty: this is the last.
    pub next_token: String,
}

/// Where a page of a dry run ended: of this session, as it stood then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Shown {
    session_id: Uuid,
    event_seq: i64,
    plan: usize,
    residue: usize,
    voided: usize,
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

    fn session_id(&self) -> Option<Uuid> {
        Some(self.session_id)
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<RollbackReply>, StepError> {
        refuse_long("reason", &self.reason)?;
        let mut session = LockedSession::require(tx, self.session_id, &self.caller).await?;
        if session.row.sealed_at.is_some() {
            return Err(Refusal::new(Reason::SessionExpired)
                .with("session_id", session.id())
                .into());
        }
        self.check_state(tx, &session).await?;
        self.check_agent(tx, &session).await?;
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
            residue: shown(&planned.residue, &by_item(&rows), 0),
            voided_approvals: Vec::new(),
            truncated: planned.residue.len() > SHOWN_MAX,
            next_token: String::new(),
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
    async fn check_state(&self, tx: &mut Tenant, session: &LockedSession) -> Result<(), StepError> {
        match session.state() {
            SessionState::Active | SessionState::AwaitingApproval | SessionState::Compensating => {
                Ok(())
            }
            _ if self.is_whole() => Ok(()),
            _ => Err(refuse_state(tx, session).await?),
        }
    }

    /// The organisation says which of its own sessions an agent may roll back. Whatever it says, a
    /// failed call or session is rolled back, and a dry run changes nothing.
    async fn check_agent(&self, tx: &mut Tenant, session: &LockedSession) -> Result<(), StepError> {
        if self.caller.role != Role::Agent || self.dry_run || !crate::guard!("rollback.agents") {
            return Ok(());
        }
        let org_id = tx.org_id();
        let policy: String =
            sqlx::query_scalar("SELECT agents_roll_back FROM undolog_orgs WHERE org_id = $1")
                .bind(org_id)
                .fetch_one(tx.conn())
                .await?;
        let may = match policy.as_str() {
            "any" => true,
            "live" => session.state().is_live() || session.state() == SessionState::Compensating,
            _ => false,
        };
        if may {
            return Ok(());
        }
        let why = format!(
            "the organisation's policy agents_roll_back is {policy}: an operator may roll this \
             session back"
        );
        Err(Refusal::because(Reason::PermissionDenied, why)
            .with("session_id", session.id())
            .with("session_state", session.state())
            .into())
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
            .bind(session.executed_until())
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

    /// Where this page of a dry run begins.
    fn begins(&self, session: &LockedSession) -> Result<Shown, StepError> {
        let event_seq = session.row.event_seq;
        let first = Shown { session_id: session.id(), event_seq, plan: 0, residue: 0, voided: 0 };
        let paging = Paging { size: 0, token: self.page_token.clone() };
        let Some(from) = paging.after::<Shown>("plan")? else { return Ok(first) };
        if (from.session_id, from.event_seq) == (session.id(), event_seq) {
            return Ok(from);
        }
        let why = "the session has moved since the page before; begin the dry run again";
        Err(StepError::refuse(Reason::CursorInvalid, why))
    }

    async fn preview(
        &self,
        tx: &mut Tenant,
        session: &LockedSession,
        planned: &Plan,
        rows: &[ItemRow],
        reply: &mut RollbackReply,
    ) -> Result<(), StepError> {
        let from = self.begins(session)?;
        let rows = by_item(rows);
        let mut page = Room::default();
        for mut item in shown(&planned.walk, &rows, from.plan) {
            if let Some(undo_id) = item.undo_id {
                item.preview = walk::preview(tx, session, undo_id).await?;
            }
            if let Some(preview) = &mut item.preview
                && !page.takes(preview, reply.plan.is_empty())
            {
                break;
            }
            reply.plan.push(item);
        }
        reply.residue = shown(&planned.residue, &rows, from.residue);
        let voided: Vec<Uuid> = planned
            .voided
            .iter()
            .filter_map(|item| rows.get(&key(item)))
            .filter_map(|row| row.approval_request_id)
            .collect();
        reply.voided_approvals =
            voided.iter().skip(from.voided).take(VOIDED_MAX).copied().collect();
        let to = Shown {
            plan: from.plan + reply.plan.len(),
            residue: from.residue + reply.residue.len(),
            voided: from.voided + reply.voided_approvals.len(),
            ..from
        };
        reply.truncated = to.plan < planned.walk.len()
            || to.residue < planned.residue.len()
            || to.voided < voided.len();
        if reply.truncated {
            reply.next_token = to_token("plan", &to)?;
        }
        Ok(())
    }
}

/// What a page of a dry run still has room for.
struct Room {
    bodies: usize,
    texts: usize,
    has_body: bool,
}

impl Default for Room {
    fn default() -> Self {
        let bodies = usize::try_from(PAGE_BYTES_MAX).unwrap_or(usize::MAX) - TEXT_BYTES;
        Self { bodies, texts: TEXT_BYTES, has_body: false }
    }
}

impl Room {
    /// Takes a call in, without what there is no room for: of bodies those that fit, and the first
    /// one always. False: it stands on the next page.
    fn takes(&mut self, preview: &mut Preview, is_first: bool) -> bool {
        preview.fit(if self.has_body { self.bodies } else { ROW_BYTES_MAX });
        let texts = preview.url.len() + preview.note.len();
        if texts > self.texts && !is_first {
            return false;
        }
        self.texts = self.texts.saturating_sub(texts);
        self.bodies = self.bodies.saturating_sub(preview.body.len());
        self.has_body |= !preview.body.is_empty();
        true
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

/// The rows of a session by what they are about: a plan looks up each of thousands of items.
type ByItem<'a> = HashMap<(Uuid, Option<Uuid>), &'a ItemRow>;

fn by_item(rows: &[ItemRow]) -> ByItem<'_> {
    rows.iter().map(|row| ((row.effect_id, row.undo_id), row)).collect()
}

fn key(item: &Item) -> (Uuid, Option<Uuid>) {
    (item.effect_id, item.undo_id)
}

fn shown(items: &[Item], rows: &ByItem<'_>, from: usize) -> Vec<PlannedItem> {
    let page = items.iter().skip(from).take(SHOWN_MAX);
    page.filter_map(|item| Some((item, rows.get(&key(item))?)))
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
