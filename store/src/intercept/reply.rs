//! Replies from rows.

use chrono::{DateTime, Duration, Utc};

use super::{InterceptReply, StoredResult};
use crate::{effects::EffectRow, error::StepError, payload};

/// A SAFE tool runs freely and leaves no row.
pub(super) fn safe() -> InterceptReply {
    InterceptReply::Execute {
        effect_id: None,
        attempt: 0,
        lease_expires_at: None,
        approval_id: None,
        approved_args: None,
        upstream: None,
    }
}

/// The caller of this grant runs the tool now.
pub(super) fn execute(effect: &EffectRow, approved_args: Option<Vec<u8>>) -> InterceptReply {
    InterceptReply::Execute {
        effect_id: Some(effect.effect_id),
        attempt: u32::try_from(effect.attempt).unwrap_or_default(),
        lease_expires_at: lease_end(effect),
        approval_id: effect.approval_request_id,
        approved_args,
        upstream: None,
    }
}

/// When a grant is lost.
pub(crate) fn lease_end(effect: &EffectRow) -> Option<DateTime<Utc>> {
    Some(effect.lease_renewed_at? + Duration::milliseconds(effect.lease_ms?))
}

pub(super) fn awaiting(effect: &EffectRow) -> Result<InterceptReply, StepError> {
    let approval_id = effect
        .approval_request_id
        .ok_or_else(|| StepError::Corrupt("a pending effect without a request".to_owned()))?;
    Ok(InterceptReply::AwaitingApproval { effect_id: effect.effect_id, approval_id })
}

/// The stored result of a committed effect.
pub(super) fn replay(effect: &EffectRow) -> Result<InterceptReply, StepError> {
    let text = effect.result_text.as_deref().unwrap_or("null");
    let result = StoredResult {
        success: true,
        output: payload::text(text, effect.result_raw.as_deref())?,
        error: String::new(),
        duration_ms: u64::try_from(effect.duration_ms.unwrap_or_default()).unwrap_or_default(),
    };
    Ok(InterceptReply::Replay { effect_id: effect.effect_id, result })
}
