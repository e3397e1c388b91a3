//! Reports of executions: Commit and Fail, and how they join a rollback that has begun.

mod commit;
pub(crate) mod evidence;
mod fail;
pub(crate) mod late;

pub use commit::Commit;
pub use fail::Fail;
use undolog_core::reason::{Reason, Refusal};

use crate::{effects::EffectRow, error::StepError, session::LockedSession};

/// The attempt that a report names: 0 means the newest. A later one than the newest was never
/// granted.
fn attempt_of(effect: &EffectRow, named: u32) -> Result<i32, StepError> {
    let named = i32::try_from(named).unwrap_or(i32::MAX);
    match named {
        0 => Ok(effect.attempt),
        named if named <= effect.attempt => Ok(named),
        _ => Err(Refusal::new(Reason::AttemptInvalid)
            .with("effect_id", effect.effect_id)
            .with("attempt", effect.attempt)
            .into()),
    }
}

/// The refusal that a report hears although it was recorded.
fn heard(reason: Reason, session: &LockedSession, effect: &EffectRow) -> Refusal {
    Refusal::new(reason)
        .with("session_id", session.id())
        .with("session_state", session.state())
        .with("effect_id", effect.effect_id)
        .with("effect_state", &effect.state)
}
