//! One key, one call. An endpoint that remembers keys refuses a second call that differs under the
//! same key, and one that does not remember them may carry out both. So what was sent under a key
//! is what is sent under it again. A call that has changed since goes out under a new key, but only
//! when no earlier one can have been carried out: else the same thing could be undone twice.

use serde_json::json;
use undolog_core::state::{DeadLetterReason, SkipReason, UndoEvent, UndoState};
use uuid::Uuid;

use super::{
    ACTOR,
    next::Top,
    prepare::{Prepared, Ready, prepare_without_result},
};
use crate::{
    effects::EffectRow,
    error::StepError,
    session::LockedSession,
    tenant::Tenant,
    undo::{self, UndoRow},
};

/// Why only a human can say what is sent now.
pub(super) const WHY_SPENT: &str = "the call has changed since it was sent under this key, and \
    what was sent may have been carried out. Look at the endpoint: resolve the letter if it is \
    undone, else retry it with a fresh key to send the call as it is now";

/// What a call is sent under.
pub(super) enum Key {
    /// The entry's own key; the call is what was sent under it, if anything was.
    Same(Box<Ready>),
    /// A new key: nothing that was sent under the entry's can have been carried out.
    New,
    /// The call that was sent cannot be made again, and may have been carried out.
    Spent,
}

/// Compares a call with what was sent under its entry's key. `is_sent`: an attempt of this very
/// claim is written and has no outcome.
pub(super) async fn keep(
    tx: &mut Tenant,
    session: &LockedSession,
    top: &Top,
    effect: &EffectRow,
    ready: Ready,
    is_sent: bool,
) -> Result<Key, StepError> {
    let is_same = |digest: &[u8; 32]| match &top.sent_digest {
        Some(sent) => sent.as_slice() == digest.as_slice() || !crate::guard!("walk.one_call"),
        None => true,
    };
    if is_same(&ready.digest) {
        return Ok(Key::Same(Box::new(ready)));
    }
    if !top.may_have_run && !is_sent {
        return Ok(Key::New);
    }
    // The tool's own report came after the call: what was sent is the call that knew no result.
    // When that one succeeds, it is settled like any call that the report came too late for.
    if ready.result_known
        && top.sent_with_result == Some(false)
        && let Prepared::Call(before) =
            prepare_without_result(tx, session, &top.entry, effect).await?
        && is_same(&before.digest)
    {
        return Ok(Key::Same(before));
    }
    Ok(Key::Spent)
}

/// Replaces an entry by a new one on top, which has a key of its own and nothing sent under it.
pub(super) async fn renew(
    tx: &mut Tenant,
    session: &mut LockedSession,
    entry: &mut UndoRow,
) -> Result<(), StepError> {
    let mut again = entry.again_on_top(session, Uuid::now_v7());
    again.round = entry.round;
    again.retry_count = entry.retry_count;
    undo::insert(tx, session, &again, ACTOR).await?;
    undo::save(tx, &again).await?;
    if entry.state()? == UndoState::Running {
        let reason = DeadLetterReason::CallChanged.as_str();
        entry.apply(session, UndoEvent::Failed, ACTOR, json!({"reason": reason}))?;
        // The database judges each move by itself.
        undo::save(tx, entry).await?;
    }
    entry.superseded_by = Some(again.undo_id);
    entry.skip(session, SkipReason::Superseded, ACTOR)?;
    undo::save(tx, entry).await
}
