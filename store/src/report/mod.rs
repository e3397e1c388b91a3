//! Reports of executions: Commit and Fail, and how they join a rollback that has begun.

mod commit;
pub(crate) mod evidence;
mod fail;
pub(crate) mod late;

pub use commit::Commit;
pub use fail::Fail;
use serde_json::json;
use undolog_core::{
    reason::{Reason, Refusal},
    role::{Rpc, allows},
    state::EffectEvent,
};

use crate::{effects::EffectRow, error::StepError, session::LockedSession, step::Caller};

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

/// Whose report this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reporter {
    /// Who was granted the call.
    Caller,
    /// The proxy that makes the call.
    Executor,
    /// Somebody else, while a proxy makes the call.
    Stranger,
}

/// Who reports on an attempt. What a proxy was granted, it alone reports on, or a human who may
/// settle calls: nobody else knows whether it is still being made.
fn reporter(caller: &Caller, effect: &EffectRow, attempt: i32, token: &str) -> Reporter {
    match effect.executor_token(attempt) {
        Some(granted) if granted == token => Reporter::Executor,
        Some(_) if !allows(caller.role, Rpc::ResolveEffect) && crate::guard!("report.holder") => {
            Reporter::Stranger
        }
        _ => Reporter::Caller,
    }
}

/// Writes a stranger's report down, which changes nothing, and answers its refusal.
fn refuse_stranger(
    session: &mut LockedSession,
    effect: &mut EffectRow,
    attempt: i32,
    caller: &Caller,
) -> Result<Refusal, StepError> {
    let detail = json!({"attempt": attempt, "why": "a proxy makes this call"});
    effect.apply(session, EffectEvent::StaleReport, &caller.principal, detail)?;
    let why = "a proxy makes this call, and its report alone is taken; the call's result is \
               there when it has ended";
    Ok(Refusal::because(Reason::PermissionDenied, why)
        .with("session_id", session.id())
        .with("effect_id", effect.effect_id)
        .with("effect_state", &effect.state))
}

/// The refusal that a report hears although it was recorded.
fn heard(reason: Reason, session: &LockedSession, effect: &EffectRow) -> Refusal {
    Refusal::new(reason)
        .with("session_id", session.id())
        .with("session_state", session.state())
        .with("effect_id", effect.effect_id)
        .with("effect_state", &effect.state)
}
