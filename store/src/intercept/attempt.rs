//! A new attempt of a known call: only after NOT_APPLIED, or for an idempotent tool.

use serde_json::json;
use undolog_core::state::EffectEvent;
use uuid::Uuid;

use super::{Intercept, InterceptReply, call::JudgedTool, reply};
use crate::{
    effects::{self, EffectRow},
    error::StepError,
    session::LockedSession,
    tenant::Tenant,
    undo,
};

impl Intercept {
    /// Moves the earlier attempt aside and grants, or asks for, the next one.
    pub(super) async fn new_attempt(
        &self,
        tx: &mut Tenant,
        session: &mut LockedSession,
        effect: &EffectRow,
        tool: &JudgedTool,
        same_entry: bool,
        new_approval: bool,
    ) -> Result<InterceptReply, StepError> {
        let chosen = if new_approval || same_entry {
            None
        } else {
            Some(self.choose_compensation(tx, session, tool).await?)
        };
        let old_entry = undo::of_attempt(tx, effect.effect_id, effect.attempt).await?;
        set_aside(tx, session, effect).await?;
        let mut next = effect.clone();
        next.tier = tool.tier.max(effect.tier()?).as_str().to_owned();
        next.tool_id = tool.tool_id;
        next.tool_version.clone_from(&tool.version);
        next.attempt += 1;
        next.end_grant();
        next.granted_at = None;
        next.lost_at = None;
        next.outcome = None;
        next.failed_at = None;
        next.error = None;
        next.error_raw = None;
        next.duration_ms = None;
        next.operator_said = None;
        next.approval_request_id = None;
        let actor = &self.input.caller.principal;
        if new_approval {
            next.position = None;
            next.asked_position = Some(session.next_position());
            next.approval_request_id = Some(Uuid::now_v7());
            next.apply(session, EffectEvent::Retried, actor, json!({}))?;
            effects::save(tx, &next).await?;
            self.request(tx, session, &next, tool).await?;
            return reply::awaiting(&next);
        }
        if !same_entry {
            next.position = Some(session.next_position());
        }
        next.apply(session, EffectEvent::Retried, actor, json!({"position": next.position}))?;
        self.grant(session, &mut next, tool)?;
        effects::save(tx, &next).await?;
        match (old_entry, chosen) {
            // The entry's key is the effect's: whichever attempt took place, one undo covers it.
            (Some(mut entry), None) => {
                entry.attempt = next.attempt;
                undo::save(tx, &entry).await?;
            }
            (_, Some(chosen)) => {
                let entry = self.entry(session, &next, chosen)?;
                undo::insert(tx, session, &entry, actor).await?;
            }
            (None, None) => {
                return Err(StepError::Corrupt(format!(
                    "effect {} has no undo entry to keep",
                    next.effect_id
                )));
            }
        }
        Ok(reply::execute(&next, None))
    }
}

/// Keeps what the earlier attempt was and came to.
async fn set_aside(
    tx: &mut Tenant,
    session: &LockedSession,
    effect: &EffectRow,
) -> Result<(), StepError> {
    let org_id = tx.org_id();
    sqlx::query(include_str!("../../sql/effect_set_aside.sql"))
        .bind(effect.effect_id)
        .bind(effect.attempt)
        .bind(org_id)
        .bind(session.id())
        .bind(effect.position)
        .bind(effect.granted_at)
        .bind(session.t())
        .bind(&effect.state)
        .bind(&effect.outcome)
        .bind(&effect.error)
        .bind(&effect.error_raw)
        .bind(effect.duration_ms)
        .bind(effect.approval_request_id)
        .bind(&effect.operator_said)
        .execute(tx.conn())
        .await?;
    Ok(())
}
