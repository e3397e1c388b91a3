//! Replays: all stored results of a session at once, for a client that resumes.
//!
//! A worker writes a snapshot for every fifty committed effects. Each holds the results of its own
//! fifty and names what it takes back of the snapshots before it, so a session's snapshots together
//! grow with its effects and not with their square. A snapshot says up to which event of the
//! session it is true; whatever changed later is read from its row. Snapshots are a cache: without
//! them a replay is slower and the same.

mod format;
mod read;
mod write;

pub use read::{OpenCall, Replay};
pub use write::{WriteSnapshot, Written};

pub(crate) use write::enqueue;

use serde::{Deserialize, Serialize};
use sqlx::FromRow;
use uuid::Uuid;

use crate::{error::StepError, payload};

/// A committed call and what it gave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are those of the wire's ReplayedCall")]
pub struct Replayed {
    pub effect_id: Uuid,
    pub attempt: i32,
    /// Its place in the order of grants: a rollback to it undoes this call.
    pub position: i32,
    pub step_index: i32,
    pub step_key: Option<String>,
    pub tool_name: String,
    pub tool_version: String,
    pub call_signature: String,
    /// JSON, as it was reported. A snapshot keeps it beside the call.
    #[serde(skip)]
    pub output: Vec<u8>,
    pub duration_ms: u64,
}

/// A committed effect as it is read.
#[derive(Debug, FromRow)]
struct CallRow {
    effect_id: Uuid,
    attempt: i32,
    position: Option<i32>,
    step_index: i32,
    step_key: Option<String>,
    tool_name: String,
    tool_version: String,
    call_signature: String,
    result_text: Option<String>,
    result_raw: Option<Vec<u8>>,
    duration_ms: Option<i64>,
}

impl CallRow {
    fn replayed(self) -> Result<Replayed, StepError> {
        let text = self.result_text.as_deref().unwrap_or("null");
        Ok(Replayed {
            output: payload::text(text, self.result_raw.as_deref())?,
            effect_id: self.effect_id,
            attempt: self.attempt,
            position: self.position.unwrap_or_default(),
            step_index: self.step_index,
            step_key: self.step_key,
            tool_name: self.tool_name,
            tool_version: self.tool_version,
            call_signature: self.call_signature,
            duration_ms: u64::try_from(self.duration_ms.unwrap_or_default()).unwrap_or_default(),
        })
    }
}
