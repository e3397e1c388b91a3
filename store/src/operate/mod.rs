//! What operators do: dead letters, unknown outcomes, halted sessions, pauses, webhooks, the brake.
//!
//! Every step checks the role itself, so that a call which passes no gate in front of it is refused
//! as well. A decision and what follows from it (entry, effect, dead letter, rollback, session and
//! their events) are one transaction under the session's lock; of two operators who decide about
//! the same thing, one wins and the other hears that it is settled.

mod brake;
mod bulk;
mod close_breaker;
mod filter;
mod go_on;
mod letter;
mod notifications;
mod pause;
mod queue;
mod resolve;
pub(crate) mod resolve_effect;
mod retry;
mod settle_session;
mod show;
mod skip;
mod unknown;

pub use brake::{BrakeOrder, SetBrake};
pub use bulk::{Change, Changed, RetryOptions, resolve_all, retry_all, skip_all};
pub use close_breaker::CloseBreaker;
pub use filter::DeadLetterFilter;
pub use notifications::{NotificationView, ReplayNotifications, Replayed, list_notifications};
pub use pause::{Pause, Resume};
pub use queue::{BreakerRow, PauseRow, QueueStatus, queue_status};
pub use resolve::ResolveDeadLetter;
pub use resolve_effect::{EffectResolved, Resolution, ResolveEffect};
pub use retry::RetryDeadLetter;
pub use settle_session::SettleSession;
pub use show::{
    DeadLetterDetail, DeadLetterItem, UndoAttemptView, get_dead_letter, list_dead_letters,
};
pub use skip::SkipDeadLetter;
use undolog_core::{
    reason::Reason,
    role::{Rpc, allows},
};
pub use unknown::{UnknownEffect, UnknownFilter, list_unknown};

use crate::{error::StepError, payload::check_text, step::Caller};

/// The role must allow the RPC that leads here.
fn require_role(caller: &Caller, rpc: Rpc) -> Result<(), StepError> {
    if allows(caller.role, rpc) || !crate::guard!("operate.role") {
        return Ok(());
    }
    let why = format!("the role {} may not do this", caller.role);
    Err(StepError::refuse(Reason::PermissionDenied, why))
}

/// A text without which the audit would not say why.
fn require_text(field: &'static str, text: &str) -> Result<(), StepError> {
    if text.trim().is_empty() {
        let why = format!("{field} is required: say it for those who read the journal");
        return Err(StepError::refuse(Reason::InvalidArgument, why));
    }
    check_text(field, text)
}
