//! A dead letter under its session's lock, and the three things that an operator does with it.

use std::str::FromStr as _;

use sqlx::FromRow;
use undolog_core::{
    reason::{Reason, Refusal},
    role::Rpc,
    state::DeadLetterReason,
};
use uuid::Uuid;

use super::{bulk::RetryOptions, resolve, retry, skip};
use crate::{
    effects::{self, EffectRow},
    error::StepError,
    session::LockedSession,
    step::Caller,
    tenant::Tenant,
    undo::{self, UndoRow},
};

/// An open dead letter with what it is about.
#[derive(Debug)]
pub(super) struct Letter {
    pub(super) id: Uuid,
    pub(super) reason: DeadLetterReason,
    pub(super) effect: EffectRow,
    pub(super) entry: Option<UndoRow>,
}

#[derive(Debug, FromRow)]
struct LetterRow {
    effect_id: Uuid,
    undo_id: Option<Uuid>,
    reason: String,
    is_closed: bool,
    closed_by: Option<String>,
    resolution: Option<String>,
}

/// What an operator does with a dead letter.
#[derive(Debug, Clone)]
pub(super) enum Action {
    /// Back to work.
    Retry(RetryOptions),
    /// Not undone, for this reason.
    Skip(String),
    /// Undone by hand, as this note says.
    Resolve(String),
}

impl Action {
    pub(super) const fn rpc(&self) -> Rpc {
        match self {
            Self::Retry(_) => Rpc::RetryDeadLetters,
            Self::Skip(_) => Rpc::SkipDeadLetters,
            Self::Resolve(_) => Rpc::ResolveDeadLetters,
        }
    }

    /// What can be said before any dead letter is looked at.
    pub(super) fn check(&self) -> Result<(), StepError> {
        match self {
            Self::Retry(options) => options.check(),
            Self::Skip(reason) => super::require_text("reason", reason),
            Self::Resolve(note) => super::require_text("note", note),
        }
    }

    /// Does it. A refusal comes before anything is written, so that the other dead letters of a
    /// bulk can be settled in the same transaction.
    pub(super) async fn apply(
        &self,
        tx: &mut Tenant,
        session: &mut LockedSession,
        dead_letter_id: Uuid,
        actor: &str,
    ) -> Result<(), StepError> {
        let letter = load(tx, session, dead_letter_id).await?;
        match self {
            Self::Retry(options) => retry::apply(tx, session, letter, options, actor).await,
            Self::Skip(reason) => skip::apply(tx, session, letter, reason, actor).await,
            Self::Resolve(note) => resolve::apply(tx, session, letter, note, actor).await,
        }
    }

    /// Does it to one dead letter, as a step of its own.
    pub(super) async fn run_one(
        &self,
        tx: &mut Tenant,
        caller: &Caller,
        dead_letter_id: Uuid,
    ) -> Result<LockedSession, StepError> {
        super::require_role(caller, self.rpc())?;
        self.check()?;
        let session_id = session_of(tx, dead_letter_id).await?;
        let session_id = session_id.ok_or_else(|| not_found(dead_letter_id))?;
        let session = LockedSession::lock(tx, session_id, caller).await?;
        let mut session = session.ok_or_else(|| not_found(dead_letter_id))?;
        self.apply(tx, &mut session, dead_letter_id, &caller.principal).await?;
        Ok(session)
    }
}

impl Letter {
    /// Nobody knows whether an irreversible call happened: that has to be said, and nothing else
    /// settles it.
    pub(super) fn refuse_unknown(&self) -> Result<(), StepError> {
        let is_question = self.entry.is_none() && self.reason == DeadLetterReason::OutcomeUnknown;
        if !is_question || !crate::guard!("operate.unknown") {
            return Ok(());
        }
        let why = "say whether the call happened (ResolveEffect, `undolog unknown resolve`): there \
                   is nothing to undo before that is known";
        Err(self.refusal(Reason::OutcomeUnknown, why).into())
    }

    /// Two people said different things about a call: only a human who looked can settle it.
    pub(super) fn refuse_contradicted(&self) -> Result<(), StepError> {
        if self.reason != DeadLetterReason::Contradicted || !crate::guard!("operate.contradicted") {
            return Ok(());
        }
        let why = "a contradicted call can only be resolved by hand";
        Err(self.refusal(Reason::Contradicted, why).into())
    }

    pub(super) fn refusal(&self, reason: Reason, why: &str) -> Refusal {
        Refusal::because(reason, why)
            .with("dead_letter_id", self.id)
            .with("effect_id", self.effect.effect_id)
    }

    /// The entry is the one of the effect's newest attempt: the effect's state tells of it.
    pub(super) fn is_of_newest(&self) -> bool {
        self.entry.as_ref().is_some_and(|entry| entry.attempt == self.effect.attempt)
    }
}

/// Reads a dead letter of a locked session; a settled one is refused.
async fn load(
    tx: &mut Tenant,
    session: &LockedSession,
    dead_letter_id: Uuid,
) -> Result<Letter, StepError> {
    let org_id = tx.org_id();
    let row: Option<LetterRow> = sqlx::query_as(
        "SELECT effect_id, undo_id, reason, closed_at IS NOT NULL AS is_closed, closed_by, \
         resolution FROM undolog_dead_letters \
         WHERE dead_letter_id = $1 AND org_id = $2 AND session_id = $3",
    )
    .bind(dead_letter_id)
    .bind(org_id)
    .bind(session.id())
    .fetch_optional(tx.conn())
    .await?;
    let row = row.ok_or_else(|| not_found(dead_letter_id))?;
    if row.is_closed && crate::guard!("operate.closed") {
        return Err(Refusal::new(Reason::DeadLetterClosed)
            .with("dead_letter_id", dead_letter_id)
            .with("closed_by", row.closed_by.unwrap_or_default())
            .with("resolution", row.resolution.unwrap_or_default())
            .into());
    }
    let reason = DeadLetterReason::from_str(&row.reason)
        .map_err(|error| StepError::Corrupt(error.to_string()))?;
    let entry = match row.undo_id {
        None => None,
        Some(undo_id) => Some(undo::load(tx, undo_id).await?.ok_or_else(|| {
            StepError::Corrupt(format!("dead letter {dead_letter_id}: no entry {undo_id}"))
        })?),
    };
    let effect = effects::require(tx, session, row.effect_id).await?;
    Ok(Letter { id: dead_letter_id, reason, effect, entry })
}

/// The session of a dead letter, unlocked: the session's lock comes first.
pub(super) async fn session_of(
    tx: &mut Tenant,
    dead_letter_id: Uuid,
) -> Result<Option<Uuid>, StepError> {
    let org_id = tx.org_id();
    Ok(sqlx::query_scalar(
        "SELECT session_id FROM undolog_dead_letters WHERE dead_letter_id = $1 AND org_id = $2",
    )
    .bind(dead_letter_id)
    .bind(org_id)
    .fetch_optional(tx.conn())
    .await?)
}

pub(super) fn not_found(dead_letter_id: Uuid) -> StepError {
    Refusal::because(
        Reason::DeadLetterNotFound,
        format!("there is no dead letter {dead_letter_id}"),
    )
    .with("dead_letter_id", dead_letter_id)
    .into()
}
