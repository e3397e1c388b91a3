//! Effects: their current rows, and moves that are recorded with every change.

use std::str::FromStr as _;

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::FromRow;
use undolog_core::{
    Tier,
    reason::Reason,
    state::{EffectEvent, EffectState, Outcome, ResultBy, Subject, effect::transition},
};
use uuid::Uuid;

use crate::{
    error::StepError,
    session::{LockedSession, one_row},
    tenant::Tenant,
};

/// The columns of an effect that steps read or write.
#[derive(Debug, Clone, PartialEq, FromRow)]
#[expect(missing_docs, reason = "the columns are described in the schema")]
pub struct EffectRow {
    pub effect_id: Uuid,
    pub session_id: Uuid,
    pub tool_id: Option<Uuid>,
    pub call_signature: String,
    pub tool_name: String,
    pub tool_version: String,
    pub tier: String,
    pub step_index: i32,
    pub step_key: Option<String>,
    pub state: String,
    pub executed_at: DateTime<Utc>,
    pub committed_at: Option<DateTime<Utc>>,
    pub compensated_at: Option<DateTime<Utc>>,
    pub attempt: i32,
    pub position: Option<i32>,
    pub asked_position: Option<i32>,
    pub grant_token: Option<String>,
    pub granted_at: Option<DateTime<Utc>>,
    pub lease_renewed_at: Option<DateTime<Utc>>,
    pub lease_ms: Option<i64>,
    pub execution_ends_at: Option<DateTime<Utc>>,
    pub lost_at: Option<DateTime<Utc>>,
    pub outcome: Option<String>,
    pub rejected_by: Option<String>,
    pub operator_said: Option<String>,
    pub failed_at: Option<DateTime<Utc>>,
    pub error: Option<String>,
    pub error_raw: Option<Vec<u8>>,
    pub duration_ms: Option<i64>,
    pub idempotent: bool,
    pub accepts_approved_args: bool,
    pub principal: String,
    pub approval_request_id: Option<Uuid>,
    pub replay_count: i16,
    pub last_replayed_at: Option<DateTime<Utc>>,
    /// By attempt, from the first one: the token of the proxy that makes the call.
    pub executor_tokens: Option<Vec<Option<String>>>,
    pub result_by: Option<String>,
    /// The stored result's text, exact when `result_raw` is absent.
    pub result_text: Option<String>,
    pub result_raw: Option<Vec<u8>>,
    /// The lease is over by the one predicate of every expiry.
    pub lease_over: bool,
}

impl EffectRow {
    /// The state as the core knows it.
    pub fn state(&self) -> Result<EffectState, StepError> {
        EffectState::from_str(&self.state).map_err(|e| StepError::Corrupt(e.to_string()))
    }

    /// The tier as the core knows it.
    pub fn tier(&self) -> Result<Tier, StepError> {
        Tier::from_str(&self.tier).map_err(|e| StepError::Corrupt(e.to_string()))
    }

    /// The outcome of a failed effect.
    pub fn outcome(&self) -> Result<Option<Outcome>, StepError> {
        self.outcome
            .as_deref()
            .map(|text| Outcome::from_str(text).map_err(|e| StepError::Corrupt(e.to_string())))
            .transpose()
    }

    /// A grant is out: the caller may be running the tool now.
    pub fn has_live_grant(&self) -> Result<bool, StepError> {
        let state = self.state()?;
        Ok(state == EffectState::Executing
            || (state == EffectState::Approved && self.lease_ms.is_some()))
    }

    /// Who said that the call happened; rows from before do not tell.
    pub fn result_by(&self) -> Result<Option<ResultBy>, StepError> {
        let named = self.result_by.as_deref().map(ResultBy::from_str).transpose();
        named.map_err(|error| StepError::Corrupt(error.to_string()))
    }

    /// The token of the proxy that was granted this attempt, if a proxy was.
    pub(crate) fn executor_token(&self, attempt: i32) -> Option<&str> {
        let place = usize::try_from(attempt).ok()?.checked_sub(1)?;
        self.executor_tokens.as_ref()?.get(place)?.as_deref()
    }

    /// A proxy makes the call of this attempt.
    pub(crate) fn granted_to_executor(&mut self, token: &str) {
        let place = usize::try_from(self.attempt).unwrap_or(1).max(1);
        let tokens = self.executor_tokens.get_or_insert_default();
        tokens.resize(place, None);
        tokens[place - 1] = Some(token.to_owned());
    }

    /// Moves the effect and records it in the session's events.
    pub fn apply(
        &mut self,
        session: &mut LockedSession,
        event: EffectEvent,
        actor: &str,
        detail: Value,
    ) -> Result<(), StepError> {
        let from = self.state()?;
        let to = transition(Some(from), event, self.tier()?).ok_or_else(|| {
            StepError::Corrupt(format!("effect {}: {event} from {from}", self.effect_id))
        })?;
        session.record(
            Subject::Effect,
            self.effect_id,
            event.as_str(),
            Some(from.as_str()),
            to.as_str(),
            Some(self.attempt),
            actor,
            detail,
        );
        if to == EffectState::Compensated && from != to {
            session.row.compensations_total += 1;
        }
        self.state = to.as_str().to_owned();
        Ok(())
    }

    /// Ends the grant: no lease is out any more.
    pub fn end_grant(&mut self) {
        self.lease_renewed_at = None;
        self.lease_ms = None;
        self.execution_ends_at = None;
        self.grant_token = None;
    }

    /// Turns a grant whose lease ran out into `unknown`. `lost_at` is when it was seen.
    pub fn lose(
        &mut self,
        session: &mut LockedSession,
        event: EffectEvent,
        actor: &str,
    ) -> Result<(), StepError> {
        let detail = serde_json::json!({"lease_ms": self.lease_ms});
        self.apply(session, event, actor, detail)?;
        self.lost_at = Some(session.now());
        if session.row.implicit {
            session.row.grant_lost_at = Some(session.now());
        }
        Ok(())
    }
}

/// The bounds of `executed_at` that a version-7 effect id allows: its millisecond. Anything else
/// was never issued by us.
pub fn executed_between(effect_id: Uuid) -> Option<(DateTime<Utc>, DateTime<Utc>)> {
    if effect_id.get_version_num() != 7 {
        return None;
    }
    let (seconds, nanos) = effect_id.get_timestamp()?.to_unix();
    let from =
        DateTime::from_timestamp(i64::try_from(seconds).ok()?, nanos / 1_000_000 * 1_000_000)?;
    Some((from, from + chrono::Duration::milliseconds(1)))
}

/// Reads an effect of a locked session.
pub async fn load(
    tx: &mut Tenant,
    session: &LockedSession,
    effect_id: Uuid,
) -> Result<Option<EffectRow>, StepError> {
    let Some((from, to)) = executed_between(effect_id) else { return Ok(None) };
    let org_id = tx.org_id();
    Ok(sqlx::query_as(include_str!("../sql/effect_load.sql"))
        .bind(effect_id)
        .bind(from)
        .bind(to)
        .bind(org_id)
        .bind(session.id())
        .bind(session.row.via_proxy)
        .bind(session.now())
        .fetch_optional(tx.conn())
        .await?)
}

/// Reads an effect of a locked session, refusing when there is none.
pub async fn require(
    tx: &mut Tenant,
    session: &LockedSession,
    effect_id: Uuid,
) -> Result<EffectRow, StepError> {
    load(tx, session, effect_id).await?.ok_or_else(|| {
        StepError::refuse(Reason::EffectNotFound, format!("there is no effect {effect_id}"))
    })
}

/// Stores the result of an effect that has none yet.
pub(crate) async fn store_result(
    tx: &mut Tenant,
    effect: &EffectRow,
    jsonb_text: Option<&str>,
    raw: Option<&[u8]>,
) -> Result<(), StepError> {
    let org_id = tx.org_id();
    let done = sqlx::query(include_str!("../sql/effect_result.sql"))
        .bind(effect.effect_id)
        .bind(effect.executed_at)
        .bind(org_id)
        .bind(jsonb_text)
        .bind(raw)
        .execute(tx.conn())
        .await?;
    one_row(done.rows_affected(), "result")
}

/// Writes back what a step changed of an effect. The result is written by its own statement.
pub async fn save(tx: &mut Tenant, effect: &EffectRow) -> Result<(), StepError> {
    let org_id = tx.org_id();
    let done = sqlx::query(include_str!("../sql/effect_save.sql"))
        .bind(effect.effect_id)
        .bind(effect.executed_at)
        .bind(org_id)
        .bind(&effect.state)
        .bind(effect.committed_at)
        .bind(effect.compensated_at)
        .bind(effect.attempt)
        .bind(effect.position)
        .bind(effect.asked_position)
        .bind(&effect.grant_token)
        .bind(effect.granted_at)
        .bind(effect.lease_renewed_at)
        .bind(effect.lease_ms)
        .bind(effect.execution_ends_at)
        .bind(effect.lost_at)
        .bind(&effect.outcome)
        .bind(&effect.rejected_by)
        .bind(&effect.operator_said)
        .bind(effect.failed_at)
        .bind(&effect.error)
        .bind(&effect.error_raw)
        .bind(effect.duration_ms)
        .bind(effect.idempotent)
        .bind(effect.accepts_approved_args)
        .bind(effect.approval_request_id)
        .bind(effect.replay_count)
        .bind(effect.last_replayed_at)
        .bind(effect.tool_id)
        .bind(&effect.tool_version)
        .bind(&effect.tier)
        .bind(&effect.executor_tokens)
        .bind(&effect.result_by)
        .execute(tx.conn())
        .await?;
    one_row(done.rows_affected(), "effect")
}
