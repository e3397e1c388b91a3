//! Retry: a compensation that was given up goes back to work, as it is or as a new entry on top.

use serde_json::json;
use undolog_core::{
    json::{Node, parse_lossless},
    limits,
    reason::{Reason, Refusal},
    state::{DeadLetterReason, EffectEvent, EffectState, SessionState, SkipReason, UndoState},
};
use uuid::Uuid;

use super::{
    bulk::RetryOptions,
    letter::{Action, Letter},
};
use crate::{
    dead_letters, effects,
    error::{Decided, StepError},
    payload, registry, rollback,
    session::LockedSession,
    step::{Caller, Step},
    tenant::Tenant,
    undo::{self, UndoRow},
};

/// Puts a dead letter back to work: a new round of retries under the same key; with edited
/// arguments or a fresh key as a new entry on top.
#[derive(Debug, Clone)]
pub struct RetryDeadLetter {
    /// Who decides.
    pub caller: Caller,
    /// The dead letter.
    pub dead_letter_id: Uuid,
    /// Other arguments, as JSON; `None`: those of the entry.
    pub args: Option<Vec<u8>>,
    /// Under a new key.
    pub fresh_key: bool,
    /// A note for people; may be empty.
    pub note: String,
}

impl Step for RetryDeadLetter {
    /// The session's state afterwards.
    type Reply = SessionState;
    const NAME: &'static str = "retry_dead_letter";

    fn org_id(&self) -> Uuid {
        self.caller.org_id
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<SessionState>, StepError> {
        let action = Action::Retry(RetryOptions {
            args: self.args.clone(),
            fresh_key: self.fresh_key,
            note: self.note.clone(),
        });
        let session = action.run_one(tx, &self.caller, self.dead_letter_id).await?;
        let state = session.state();
        session.save(tx).await?;
        Ok(Ok(state))
    }
}

pub(super) async fn apply(
    tx: &mut Tenant,
    session: &mut LockedSession,
    mut letter: Letter,
    options: &RetryOptions,
    actor: &str,
) -> Result<(), StepError> {
    letter.refuse_unknown()?;
    letter.refuse_contradicted()?;
    let edited = match &options.args {
        None => None,
        Some(args) => Some(edited(tx, session, &letter, args).await?),
    };
    let is_late = letter.reason == DeadLetterReason::LateCommit;
    let is_of_newest = letter.is_of_newest();
    let Some(entry) = &mut letter.entry else {
        return Err(StepError::Corrupt(format!("dead letter {}: no entry to retry", letter.id)));
    };
    let position = if is_late || edited.is_some() || options.fresh_key {
        let again = on_top(session, entry, edited);
        insert(tx, session, &again, actor).await?;
        if entry.state()? == UndoState::Failed {
            entry.superseded_by = Some(again.undo_id);
            entry.skip(session, SkipReason::Superseded, actor)?;
            undo::save(tx, entry).await?;
        }
        again.stack_position
    } else {
        entry.retry(session, actor, json!({"dead_letter_id": letter.id}))?;
        undo::save(tx, entry).await?;
        entry.stack_position
    };
    if is_of_newest && letter.effect.state()? == EffectState::CompensationFailed {
        letter.effect.apply(session, EffectEvent::CompensationRetried, actor, json!({}))?;
        effects::save(tx, &letter.effect).await?;
    }
    let note = Some(options.note.as_str()).filter(|note| !note.is_empty());
    dead_letters::close(tx, session, letter.id, actor, "retried", note).await?;
    rollback::for_entry(tx, session, position, actor).await
}

/// The entry once more, under a new key. The round says that a human wants it called whatever is
/// known of the call.
fn on_top(
    session: &mut LockedSession,
    entry: &UndoRow,
    edited: Option<(Node, Vec<u8>)>,
) -> UndoRow {
    let mut again = entry.again_on_top(session, Uuid::now_v7());
    again.round = entry.round + 1;
    if let Some((node, original)) = edited {
        let stored = payload::store(&node, &original);
        again.args_text = stored.jsonb_text;
        again.args_raw = stored.raw;
        // What a human wrote is what is sent: nothing in it waits for a result.
        again.result_templates = b"{}".to_vec();
    }
    again
}

async fn insert(
    tx: &mut Tenant,
    session: &mut LockedSession,
    entry: &UndoRow,
    actor: &str,
) -> Result<(), StepError> {
    undo::insert(tx, session, entry, actor).await?;
    // A new row begins with round 1.
    undo::save(tx, entry).await
}

/// Edited arguments, checked like those of a registered call.
async fn edited(
    tx: &mut Tenant,
    session: &LockedSession,
    letter: &Letter,
    args: &[u8],
) -> Result<(Node, Vec<u8>), StepError> {
    let Some(entry) = &letter.entry else {
        return Err(letter.refusal(Reason::InvalidArgument, "nothing takes arguments here").into());
    };
    let node = parse_lossless(args)
        .map_err(|error| letter.refusal(Reason::ArgsInvalid, &format!("args: {error}")))?;
    let (name, version) = (&entry.compensation_fn, entry.compensation_version.as_str());
    let epoch = session.row.registry_epoch;
    let bundle = registry::compensation(tx, epoch, name, Some(version)).await?;
    let Some(bundle) = bundle.filter(|bundle| bundle.is_active) else {
        let why = format!("the compensation {name} {version} is not registered or not active");
        return Err(letter.refusal(Reason::CompensationUnusable, &why).into());
    };
    if !bundle.fn_body.uses_comp() && crate::guard!("operate.args_unused") {
        let why = format!(
            "{name} sends none of these arguments: it has no {{comp.…}} placeholder. Retry it as \
             it is, or register a version of it that reads them"
        );
        return Err(letter.refusal(Reason::ArgsInvalid, &why).into());
    }
    if crate::guard!("operate.args_schema")
        && let Err(why) = bundle.check_args(tx, &node)?
    {
        let why = format!("the arguments do not fit the schema of {name}: {why}");
        return Err(letter.refusal(Reason::ArgsInvalid, &why).into());
    }
    Ok((node, args.to_vec()))
}

impl RetryOptions {
    pub(super) fn check(&self) -> Result<(), StepError> {
        super::check_text("note", &self.note)?;
        let length = self.args.as_ref().map_or(0, Vec::len);
        if length > limits::ARGS_BYTES_MAX {
            return Err(Refusal::because(Reason::LimitExceeded, "the arguments are too large")
                .with("limit_bytes", limits::ARGS_BYTES_MAX)
                .into());
        }
        Ok(())
    }
}
