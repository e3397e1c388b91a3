//! What the journal holds for a call: by its signature, its step and its key.

use std::time::Duration;

use serde_json::json;
use undolog_core::{
    intercept::{Found, RejectedCause},
    limits::ADVISORY_LOCK_WAIT_MS,
    reason::{Reason, Refusal},
    signature::Signature,
    state::{EffectState, Outcome, SessionEvent, SessionState, Subject},
};
use uuid::Uuid;

use super::{Intercept, StepRef};
use crate::{
    effects::{self, EffectRow},
    error::StepError,
    registry::ToolBundle,
    session::{LockedSession, not_found},
    tenant::Tenant,
};

/// How often the documented advisory lock is tried, with this pause in between.
const ADVISORY_TRIES: u64 = ADVISORY_LOCK_WAIT_MS / ADVISORY_PAUSE_MS;
const ADVISORY_PAUSE_MS: u64 = 10;
const ADVISORY_PAUSE: Duration = Duration::from_millis(ADVISORY_PAUSE_MS);

/// What is known of a call.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) step_index: i32,
    pub(super) signature: Signature,
    pub(super) effect: Option<EffectRow>,
    pub(super) step_held: bool,
}

impl Known {
    pub(super) fn effect(&self) -> Result<&EffectRow, StepError> {
        self.effect
            .as_ref()
            .ok_or_else(|| StepError::Corrupt("a known call without its effect".to_owned()))
    }
}

impl Intercept {
    /// Begins the session that the first call of an unknown id implies.
    pub(super) async fn implicit_session(
        &self,
        tx: &mut Tenant,
        tool: Option<&ToolBundle>,
    ) -> Result<LockedSession, StepError> {
        let caller = &self.input.caller;
        let org_id = tx.org_id();
        sqlx::query(include_str!("../../sql/session_implicit.sql"))
            .bind(self.input.session_id)
            .bind(org_id)
            .bind(&caller.principal)
            .bind(caller.via_proxy)
            .bind(tool.and_then(|tool| tool.project_id))
            .execute(tx.conn())
            .await?;
        // No row means that the id is taken by another organisation or another principal.
        let session = LockedSession::lock(tx, self.input.session_id, caller).await?;
        let mut session = session.ok_or_else(|| not_found(self.input.session_id))?;
        if session.row.event_seq == 0 {
            let id = session.id();
            session.record(
                Subject::Session,
                id,
                SessionEvent::Begun.as_str(),
                None,
                SessionState::Active.as_str(),
                None,
                &caller.principal,
                json!({"implicit": true}),
            );
        }
        Ok(session)
    }

    /// Finds the call and takes the documented advisory lock on its signature.
    pub(super) async fn find(
        &self,
        tx: &mut Tenant,
        session: &mut LockedSession,
    ) -> Result<Known, StepError> {
        let numbering = session.row.numbering.as_deref();
        if numbering.is_some_and(|way| way != self.numbering()) {
            let why = "a session uses either step_index or step_key";
            return Err(StepError::refuse(Reason::StepInvalid, why));
        }
        let step_index = match &self.input.step {
            StepRef::Index { step_index, .. } => i32::try_from(*step_index)
                .map_err(|_| StepError::refuse(Reason::StepInvalid, "step_index is too large"))?,
            StepRef::Key(key) => self.step_of_key(tx, session, key).await?,
        };
        let signature = self.signature_at(step_index);
        if let Some(supplied) = self.supplied
            && supplied != signature
            && crate::guard!("intercept.signature")
        {
            return Err(Refusal::new(Reason::SignatureMismatch).with("expected", signature).into());
        }
        let (effect_id, step_held) = self.look_up(tx, session, step_index, signature).await?;
        let effect = match effect_id {
            Some(effect_id) => Some(effects::require(tx, session, effect_id).await?),
            None => None,
        };
        Ok(Known { step_index, signature, effect, step_held })
    }

    async fn look_up(
        &self,
        tx: &mut Tenant,
        session: &LockedSession,
        step_index: i32,
        signature: Signature,
    ) -> Result<(Option<Uuid>, bool), StepError> {
        let org_id = tx.org_id();
        for attempt in 1.. {
            let (is_locked, effect_id, is_shared): (bool, Option<Uuid>, bool) =
                sqlx::query_as(include_str!("../../sql/intercept_find.sql"))
                    .bind(session.row.session_month)
                    .bind(session.id())
                    .bind(signature.to_string())
                    .bind(org_id)
                    .bind(advisory_key(signature))
                    .bind(step_index)
                    .fetch_one(tx.conn())
                    .await?;
            if is_locked {
                let step_held =
                    is_shared && self.step_held(tx, session, step_index, signature).await?;
                return Ok((effect_id, step_held));
            }
            if attempt == ADVISORY_TRIES {
                break;
            }
            tokio::time::sleep(ADVISORY_PAUSE).await;
        }
        Err(StepError::Refused(Refusal::new(Reason::InProgress)))
    }

    /// Whether another call of the step still holds it. Where steps may be shared, nobody asks.
    async fn step_held(
        &self,
        tx: &mut Tenant,
        session: &LockedSession,
        step_index: i32,
        signature: Signature,
    ) -> Result<bool, StepError> {
        if session.shares_steps() {
            return Ok(false);
        }
        let org_id = tx.org_id();
        Ok(sqlx::query_scalar(include_str!("../../sql/step_holder.sql"))
            .bind(session.row.session_month)
            .bind(session.id())
            .bind(signature.to_string())
            .bind(org_id)
            .bind(step_index)
            .bind(session.row.started_at)
            .bind(session.executed_until())
            .fetch_one(tx.conn())
            .await?)
    }

    /// The step that a key already has, or the next free one. The same key with another tool or
    /// other arguments is a conflict.
    async fn step_of_key(
        &self,
        tx: &mut Tenant,
        session: &LockedSession,
        key: &str,
    ) -> Result<i32, StepError> {
        let org_id = tx.org_id();
        let known: Option<(i32, String)> = sqlx::query_as(
            "SELECT step_index, call_signature::text FROM undolog_signatures \
             WHERE session_month = $1 AND session_id = $2 AND step_key = $3 AND org_id = $4",
        )
        .bind(session.row.session_month)
        .bind(session.id())
        .bind(key)
        .bind(org_id)
        .fetch_optional(tx.conn())
        .await?;
        match known {
            Some((step, signature)) if signature == self.signature_at(step).to_string() => Ok(step),
            Some((step, _)) => Err(Refusal::because(
                Reason::StepConflict,
                "this step_key was used for another call",
            )
            .with("step_index", step)
            .into()),
            None => session
                .row
                .max_step
                .checked_add(1)
                .ok_or_else(|| StepError::refuse(Reason::LimitExceeded, "no step is left")),
        }
    }
}

/// The table row of what was found.
pub(super) fn found(
    known: &Known,
    grant_token: Option<&str>,
    idempotent: bool,
) -> Result<Found, StepError> {
    let Some(effect) = &known.effect else {
        return Ok(if known.step_held { Found::StepHeld } else { Found::Nothing });
    };
    let token = grant_token.filter(|token| !token.is_empty());
    let live = || Found::LiveGrant {
        same_token: token.is_some() && token == effect.grant_token.as_deref(),
    };
    Ok(match effect.state()? {
        EffectState::Committed => Found::Committed,
        EffectState::Executing => live(),
        EffectState::Approved if effect.has_live_grant()? => live(),
        EffectState::Approved => Found::ApprovedUngranted,
        EffectState::Pending => Found::Pending,
        EffectState::Failed if effect.outcome()? == Some(Outcome::NotApplied) => {
            Found::FailedNotApplied { step_taken: known.step_held }
        }
        EffectState::Failed | EffectState::Unknown => Found::UnknownOrMaybe { idempotent },
        EffectState::Rejected => Found::Rejected { cause: cause(effect.rejected_by.as_deref()) },
        EffectState::Compensating => Found::Compensating,
        EffectState::Compensated => Found::Compensated,
        EffectState::CompensationFailed => Found::CompensationFailed,
        EffectState::Replayed => {
            return Err(StepError::Corrupt("no row is ever `replayed`".to_owned()));
        }
    })
}

fn cause(rejected_by: Option<&str>) -> RejectedCause {
    match rejected_by {
        Some("timeout") => RejectedCause::TimedOut,
        Some("lapse") => RejectedCause::Lapsed,
        Some("revoke") => RejectedCause::Revoked,
        Some("rollback") => RejectedCause::Voided,
        _ => RejectedCause::Rejected,
    }
}

/// The documented advisory lock's key: the first eight bytes of the signature.
fn advisory_key(signature: Signature) -> i64 {
    let mut first = [0_u8; 8];
    first.copy_from_slice(&signature.as_bytes()[..8]);
    i64::from_be_bytes(first)
}
