//! What the walk would do about an entry now: for a dry run, and for people who look.

use undolog_core::state::UndoState;
use uuid::Uuid;

use super::prepare::{Prepared, prepare};
use crate::{
    effects, error::StepError, session::LockedSession, sessions::Preview, tenant::Tenant, undo,
};

/// Reads an entry and fills its call in, without writing anything. `None`: it is settled, or gone.
///
/// # Errors
/// The database could not be read.
pub async fn preview(
    tx: &mut Tenant,
    session: &LockedSession,
    undo_id: Uuid,
) -> Result<Option<Preview>, StepError> {
    let Some(entry) = undo::load(tx, undo_id).await? else { return Ok(None) };
    if !matches!(entry.state()?, UndoState::Pending | UndoState::Running | UndoState::Failed) {
        return Ok(None);
    }
    let effect = effects::require(tx, session, entry.effect_id).await?;
    if entry.attempt == effect.attempt && effect.has_live_grant()? {
        return Ok(Some(no_call("wait", "its call is still running".to_owned())));
    }
    Ok(Some(match prepare(tx, session, &entry, &effect).await? {
        Prepared::Call(ready) => Preview {
            action: "call",
            method: ready.call.method.as_str().to_owned(),
            url: ready.call.shown_url(),
            body: ready.call.shown_body().unwrap_or_default().into(),
            content_type: ready.call.content_type().unwrap_or_default(),
            note: String::new(),
            left_out: Vec::new(),
        },
        Prepared::Wait => no_call("wait", "the tool's probe is asked first".to_owned()),
        Prepared::Skip(reason) => no_call("skip", reason.as_str().to_owned()),
        Prepared::Dead(reason, why) => no_call("dead_letter", format!("{reason}: {why}")),
    }))
}

fn no_call(action: &'static str, note: String) -> Preview {
    Preview { action, note, ..Preview::default() }
}
