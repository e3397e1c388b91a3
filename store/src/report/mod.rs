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
    state::{EffectEvent, ResultBy},
};

use crate::{
    effects::EffectRow,
    error::{Decided, StepError},
    session::LockedSession,
    step::Caller,
    tenant::Tenant,
    upstream,
};

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

/// Whose word a report of an attempt is. What a proxy was granted, it alone reports on, or a human
/// who may settle calls: nobody else knows whether it is still being made. A stranger's report is
/// written down and refused; `Ok(Err(_))` is that refusal, with which the session is saved.
async fn admit(
    tx: &mut Tenant,
    session: &mut LockedSession,
    effect: &mut EffectRow,
    attempt: i32,
    (caller, token): (&Caller, &str),
) -> Result<Decided<ResultBy>, StepError> {
    let granted = effect.executor_token(attempt);
    if granted == Some(token) {
        // With an agent's key it can be the agent itself that asked as if it were a proxy.
        let is_proxy = caller.role.is_bound_to_upstream_tools();
        return Ok(Ok(if is_proxy { ResultBy::Executor } else { ResultBy::Caller }));
    }
    let may_settle = allows(caller.role, Rpc::ResolveEffect) || !crate::guard!("report.holder");
    let is_stranger = granted.is_some() && !may_settle;
    upstream::check_executor(tx, caller, Some(effect)).await?;
    if !is_stranger {
        return Ok(Ok(ResultBy::Caller));
    }
    let detail = json!({"attempt": attempt, "why": "a proxy makes this call"});
    effect.apply(session, EffectEvent::StaleReport, &caller.principal, detail)?;
    let why = "a proxy makes this call, and its report alone is taken; the call's result is \
               there when it has ended";
    Ok(Err(Refusal::because(Reason::PermissionDenied, why)
        .with("session_id", session.id())
        .with("effect_id", effect.effect_id)
        .with("effect_state", &effect.state)))
}

/// The refusal that a report hears although it was recorded.
fn heard(reason: Reason, session: &LockedSession, effect: &EffectRow) -> Refusal {
    Refusal::new(reason)
        .with("session_id", session.id())
        .with("session_state", session.state())
        .with("effect_id", effect.effect_id)
        .with("effect_state", &effect.state)
}
