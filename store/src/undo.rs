//! Undo entries: one per attempt of a compensable effect, numbered by the session's counter.

use std::str::FromStr as _;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use sqlx::FromRow;
use undolog_core::state::{SkipReason, Subject, UndoEvent, UndoState, undo::transition};
use uuid::Uuid;

use crate::{
    effects::EffectRow,
    error::StepError,
    registry,
    session::{LockedSession, one_row},
    tenant::Tenant,
};

/// An undo entry.
#[derive(Debug, Clone, PartialEq, FromRow)]
#[expect(missing_docs, reason = "the columns are described in the schema")]
pub struct UndoRow {
    pub undo_id: Uuid,
    pub session_id: Uuid,
    pub effect_id: Uuid,
    pub attempt: i32,
    pub stack_position: i32,
    pub compensation_fn: String,
    pub compensation_version: String,
    pub args_text: String,
    pub args_raw: Option<Vec<u8>>,
    /// JSON text of the strings that wait for a result (see the core's `template::Pending`).
    pub result_templates: Vec<u8>,
    pub state: String,
    pub retry_count: i16,
    pub max_retries: i32,
    pub retry_backoff_ms: i32,
    pub round: i32,
    pub next_try_at: Option<DateTime<Utc>>,
    pub interruptions: i32,
    pub deferred_since: Option<DateTime<Utc>>,
    pub skip_reason: Option<String>,
    pub cause: Option<String>,
    pub superseded_by: Option<Uuid>,
    pub last_error: Option<String>,
    pub last_error_raw: Option<Vec<u8>>,
    pub registered_at: DateTime<Utc>,
    pub compensated_at: Option<DateTime<Utc>>,
}

/// The columns of an entry, for the statements that read one.
pub(crate) const COLUMNS: &str = "undo_id, session_id, effect_id, attempt, stack_position, \
    compensation_fn, compensation_version, compensation_args::text AS args_text, \
    compensation_args_raw AS args_raw, result_templates, state, retry_count, max_retries, \
    retry_backoff_ms, round, next_try_at, interruptions, deferred_since, skip_reason, cause, \
    superseded_by, last_error, last_error_raw, registered_at, compensated_at";

impl UndoRow {
    /// The state as the core knows it.
    pub fn state(&self) -> Result<UndoState, StepError> {
        UndoState::from_str(&self.state).map_err(|e| StepError::Corrupt(e.to_string()))
    }

    /// May its compensation be run again when the call's result came after it?
    pub(crate) async fn is_repeatable(
        &self,
        tx: &mut Tenant,
        session: &LockedSession,
    ) -> Result<bool, StepError> {
        let epoch = session.row.registry_epoch;
        let version = Some(self.compensation_version.as_str());
        let bundle = registry::compensation(tx, epoch, &self.compensation_fn, version).await?;
        Ok(bundle.is_some_and(|bundle| bundle.fn_body.repeatable))
    }

    /// It was skipped because its call had not been applied, as far as was known.
    pub fn is_not_applied(&self) -> bool {
        self.skip_reason.as_deref() == Some(SkipReason::NotApplied.as_str())
    }

    /// Moves the entry and records it in the session's events.
    pub fn apply(
        &mut self,
        session: &mut LockedSession,
        event: UndoEvent,
        actor: &str,
        detail: Value,
    ) -> Result<(), StepError> {
        let from = self.state()?;
        let to = transition(Some(from), event).ok_or_else(|| {
            StepError::Corrupt(format!("undo entry {}: {event} from {from}", self.undo_id))
        })?;
        session.record(
            Subject::Undo,
            self.undo_id,
            event.as_str(),
            Some(from.as_str()),
            to.as_str(),
            Some(self.attempt),
            actor,
            detail,
        );
        self.state = to.as_str().to_owned();
        if matches!(to, UndoState::Pending | UndoState::Running) {
            session.undo_opened(self.stack_position);
        }
        if to == UndoState::Compensated {
            self.compensated_at = Some(session.t());
            self.next_try_at = None;
        }
        Ok(())
    }

    /// Skips the entry for a reason.
    pub fn skip(
        &mut self,
        session: &mut LockedSession,
        reason: SkipReason,
        actor: &str,
    ) -> Result<(), StepError> {
        self.apply(session, UndoEvent::Skipped, actor, json!({"reason": reason.as_str()}))?;
        self.skip_reason = Some(reason.as_str().to_owned());
        self.next_try_at = None;
        Ok(())
    }

    /// Puts a failed entry back to work: a new round of retries under the same key.
    pub fn retry(
        &mut self,
        session: &mut LockedSession,
        actor: &str,
        detail: Value,
    ) -> Result<(), StepError> {
        self.apply(session, UndoEvent::Retried, actor, detail)?;
        self.round += 1;
        self.retry_count = 0;
        self.interruptions = 0;
        self.next_try_at = None;
        self.deferred_since = None;
        self.cause = None;
        Ok(())
    }

    /// A copy of this entry under a new key on top of the stack, for work that has to be done
    /// although this entry is settled.
    pub fn again_on_top(&self, session: &mut LockedSession, undo_id: Uuid) -> Self {
        Self {
            undo_id,
            stack_position: session.next_position(),
            state: UndoState::Pending.as_str().to_owned(),
            retry_count: 0,
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
            ..self.clone()
        }
    }
}

/// Reads the newest entry of one attempt of an effect.
pub async fn of_attempt(
    tx: &mut Tenant,
    effect_id: Uuid,
    attempt: i32,
) -> Result<Option<UndoRow>, StepError> {
    let org_id = tx.org_id();
    Ok(sqlx::query_as(&format!(
        "SELECT {COLUMNS} FROM undolog_undo_stack \
         WHERE effect_id = $1 AND attempt = $2 AND org_id = $3 \
         ORDER BY stack_position DESC LIMIT 1"
    ))
    .bind(effect_id)
    .bind(attempt)
    .bind(org_id)
    .fetch_optional(tx.conn())
    .await?)
}

/// Reads the entry that an attempt of an effect goes by: its own, else the newest attempt's, which
/// the attempts of an idempotent tool share.
pub async fn of_attempt_or_shared(
    tx: &mut Tenant,
    effect: &EffectRow,
    attempt: i32,
) -> Result<Option<UndoRow>, StepError> {
    let own = of_attempt(tx, effect.effect_id, attempt).await?;
    if own.is_some() || attempt == effect.attempt {
        return Ok(own);
    }
    of_attempt(tx, effect.effect_id, effect.attempt).await
}

/// Reads one entry.
pub async fn load(tx: &mut Tenant, undo_id: Uuid) -> Result<Option<UndoRow>, StepError> {
    let org_id = tx.org_id();
    Ok(sqlx::query_as(&format!(
        "SELECT {COLUMNS} FROM undolog_undo_stack WHERE undo_id = $1 AND org_id = $2"
    ))
    .bind(undo_id)
    .bind(org_id)
    .fetch_optional(tx.conn())
    .await?)
}

/// Registers an entry and records it.
pub async fn insert(
    tx: &mut Tenant,
    session: &mut LockedSession,
    entry: &UndoRow,
    actor: &str,
) -> Result<(), StepError> {
    let org_id = tx.org_id();
    session.undo_opened(entry.stack_position);
    session.record(
        Subject::Undo,
        entry.undo_id,
        UndoEvent::Registered.as_str(),
        None,
        UndoState::Pending.as_str(),
        Some(entry.attempt),
        actor,
        json!({"effect_id": entry.effect_id, "position": entry.stack_position}),
    );
    let done = sqlx::query(include_str!("../sql/undo_insert.sql"))
        .bind(entry.undo_id)
        .bind(org_id)
        .bind(entry.session_id)
        .bind(entry.effect_id)
        .bind(entry.attempt)
        .bind(entry.stack_position)
        .bind(&entry.compensation_fn)
        .bind(&entry.compensation_version)
        .bind(&entry.args_text)
        .bind(&entry.args_raw)
        .bind(&entry.result_templates)
        .bind(entry.max_retries)
        .bind(entry.retry_backoff_ms)
        .bind(entry.registered_at)
        .execute(tx.conn())
        .await?;
    one_row(done.rows_affected(), "undo entry")
}

/// Writes back what a step changed of an entry.
pub async fn save(tx: &mut Tenant, entry: &UndoRow) -> Result<(), StepError> {
    let org_id = tx.org_id();
    let done = sqlx::query(include_str!("../sql/undo_save.sql"))
        .bind(entry.undo_id)
        .bind(org_id)
        .bind(&entry.state)
        .bind(entry.retry_count)
        .bind(entry.round)
        .bind(entry.next_try_at)
        .bind(entry.interruptions)
        .bind(entry.deferred_since)
        .bind(&entry.skip_reason)
        .bind(&entry.cause)
        .bind(entry.superseded_by)
        .bind(&entry.last_error)
        .bind(&entry.last_error_raw)
        .bind(entry.compensated_at)
        .bind(entry.attempt)
        .execute(tx.conn())
        .await?;
    one_row(done.rows_affected(), "undo entry")
}
