//! Evidence that a call happened: its caller's Commit, or what a probe or an operator found out. It
//! is recorded in every session state, and joins a rollback that has begun.

use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::FromRow;
use undolog_core::{
    Tier,
    commit::{CommitAction, CommitFound, StoredResult, decide},
    json::{Node, canonical_value_eq},
    reason::{Reason, Refusal},
    state::{DeadLetterReason, EffectEvent, ResultBy, UndoState},
};
use uuid::Uuid;

use super::late;
use crate::{
    dead_letters::{self, About},
    effects::{self, EffectRow},
    error::StepError,
    payload,
    rollback::{self, Scoped},
    session::LockedSession,
    tenant::Tenant,
    undo::{self, UndoRow},
};

/// What is said, and by whom.
#[derive(Debug)]
pub(crate) struct Evidence<'a> {
    /// What they are to the call.
    pub(crate) by: ResultBy,
    /// Who says that it happened.
    pub(crate) actor: &'a str,
    /// Who closes the dead letters that waited for it.
    pub(crate) closed_by: &'a str,
    /// `Committed`, or `ResolvedCommitted` when it is not the caller who says so.
    pub(crate) event: EffectEvent,
    /// Kept on the effect when an operator says so.
    pub(crate) operator_said: Option<&'static str>,
    /// For people, on the closed dead letters.
    pub(crate) note: Option<&'a str>,
    /// The result's output.
    pub(crate) output: Node,
    /// The bytes that the output was parsed from.
    pub(crate) bytes: Vec<u8>,
    /// How long the call took.
    pub(crate) duration_ms: Option<i64>,
}

/// What evidence came to.
#[derive(Debug)]
pub(crate) struct Recorded {
    /// The effect as it stands now.
    pub(crate) effect: EffectRow,
    /// What the caller of a Commit hears; it was recorded all the same.
    pub(crate) reply: Option<Reason>,
}

/// The earlier attempt that a stale report names.
#[derive(Debug, FromRow)]
struct EarlierAttempt {
    position: Option<i32>,
    granted_at: Option<DateTime<Utc>>,
    operator_said: Option<String>,
    result_text: Option<String>,
    result_raw: Option<Vec<u8>>,
}

/// Everything that evidence finds and works on.
struct Work {
    effect: EffectRow,
    attempt: i32,
    /// The attempt's own row, unless it is the newest one.
    earlier: Option<EarlierAttempt>,
    entry: Option<UndoRow>,
    scoped: Scoped,
}

/// Records that an attempt of an effect happened. Writes everything but the session's own row.
pub(crate) async fn record(
    tx: &mut Tenant,
    session: &mut LockedSession,
    effect: EffectRow,
    attempt: i32,
    evidence: Evidence<'_>,
) -> Result<Recorded, StepError> {
    let entry = undo::of_attempt_or_shared(tx, &effect, attempt).await?;
    let earlier = match attempt == effect.attempt {
        true => None,
        false => Some(earlier_attempt(tx, effect.effect_id, attempt).await?),
    };
    let granted_at = earlier.as_ref().map_or(effect.position, |earlier| earlier.position);
    let position = entry.as_ref().map(|entry| entry.stack_position).or(granted_at);
    let scoped = rollback::scoped(tx, session, position).await?;
    let mut work = Work { effect, attempt, earlier, entry, scoped };
    let found = evidence.find(tx, session, &work).await?;
    let plan = decide(&found);
    for action in &plan.actions {
        evidence.act(tx, session, &mut work, *action).await?;
    }
    Ok(Recorded { effect: work.effect, reply: plan.reply })
}

impl Evidence<'_> {
    async fn find(
        &self,
        tx: &mut Tenant,
        session: &LockedSession,
        work: &Work,
    ) -> Result<CommitFound, StepError> {
        let effect = &work.effect;
        let is_current = work.earlier.is_none();
        let (granted, operator_said, stored_text, stored_raw) = match &work.earlier {
            None => (
                effect.granted_at.is_some(),
                &effect.operator_said,
                &effect.result_text,
                &effect.result_raw,
            ),
            Some(earlier) => (
                earlier.granted_at.is_some(),
                &earlier.operator_said,
                &earlier.result_text,
                &earlier.result_raw,
            ),
        };
        let stored = match stored_text {
            None => StoredResult::None,
            Some(text) => {
                let known = payload::read(text, stored_raw.as_deref())?;
                if canonical_value_eq(&known, &self.output) {
                    StoredResult::Same
                } else {
                    StoredResult::Different
                }
            }
        };
        Ok(CommitFound {
            effect: effect.state()?,
            tier: effect.tier()?,
            granted,
            is_current,
            stored,
            entry: work.entry.as_ref().map(UndoRow::state).transpose()?,
            dead_letter: late::dead_letter(tx, effect.effect_id, work.entry.as_ref()).await?,
            scope: work.scoped.scope(),
            rollback_live: work.scoped.live.is_some(),
            operator_said_not_applied: operator_said.as_deref() == Some("not_applied"),
            is_repeatable: is_repeatable(tx, session, work).await?,
            session: session.state(),
        })
    }

    async fn act(
        &self,
        tx: &mut Tenant,
        session: &mut LockedSession,
        work: &mut Work,
        action: CommitAction,
    ) -> Result<(), StepError> {
        let actor = self.actor;
        match action {
            CommitAction::Commit => {
                let effect = &mut work.effect;
                effect.apply(session, self.event, actor, json!({}))?;
                session.row.commits_total = session.row.commits_total.saturating_add(1);
                if let Some(said) = self.operator_said {
                    effect.operator_said = Some(said.to_owned());
                }
                effect.committed_at = Some(session.t());
                effect.result_by = Some(self.by.as_str().to_owned());
                effect.outcome = None;
                effect.duration_ms = self.duration_ms;
                effect.end_grant();
                effects::save(tx, effect).await?;
                self.store_result(tx, work).await
            }
            CommitAction::StoreResult => {
                work.effect.duration_ms = self.duration_ms;
                work.effect.result_by = Some(self.by.as_str().to_owned());
                effects::save(tx, &work.effect).await?;
                self.store_result(tx, work).await
            }
            CommitAction::StoreOnAttempt => self.store_on_attempt(tx, session, work).await,
            CommitAction::NewEntry => new_entry(tx, session, work, actor).await,
            CommitAction::OweEntry => owe(tx, work).await,
            CommitAction::StartLate => {
                rollback::start_late(tx, session, new_position(work)?, actor).await.map(drop)
            }
            CommitAction::RequeueEntry => requeue(tx, session, work, actor).await,
            CommitAction::CloseDeadLetter => {
                for letter in late::letters(tx, work.effect.effect_id, work.entry.as_ref()).await? {
                    let id = letter.dead_letter_id;
                    let by = self.closed_by;
                    dead_letters::close(tx, session, id, by, "committed", self.note).await?;
                }
                Ok(())
            }
            CommitAction::NoteDeadLetter => {
                for letter in late::letters(tx, work.effect.effect_id, work.entry.as_ref()).await? {
                    dead_letters::note(session, letter.dead_letter_id, actor, "late result");
                }
                Ok(())
            }
            CommitAction::OpenDeadLetter(reason) => {
                self.open_dead_letter(tx, session, work, reason).await
            }
            CommitAction::CountResidue => {
                late::count_residue(tx, session, work.scoped.covering()).await
            }
            CommitAction::MakeDue => match work.scoped.due() {
                Some(due) => rollback::make_due(tx, session, due, actor).await,
                None => Ok(()),
            },
            CommitAction::Event(event) => {
                let detail = json!({"attempt": work.attempt});
                work.effect.apply(session, event, actor, detail)
            }
        }
    }

    async fn open_dead_letter(
        &self,
        tx: &mut Tenant,
        session: &mut LockedSession,
        work: &mut Work,
        reason: DeadLetterReason,
    ) -> Result<(), StepError> {
        let actor = self.actor;
        let about = About {
            effect_id: work.effect.effect_id,
            undo_id: work.entry.as_ref().map(|entry| entry.undo_id),
            rollback_id: work.scoped.covering().map(|rollback| rollback.rollback_id),
        };
        let detail = match reason {
            DeadLetterReason::LateCommit => "the call committed after it had been compensated",
            _ => "the call committed after an operator had said that it was not applied",
        };
        dead_letters::open(tx, session, about, reason, detail, actor).await?;
        late::dead_lettered(tx, session, work.scoped.covering(), actor).await
    }

    /// Keeps a result on the attempt that it belongs to.
    async fn store_on_attempt(
        &self,
        tx: &mut Tenant,
        session: &LockedSession,
        work: &Work,
    ) -> Result<(), StepError> {
        let org_id = tx.org_id();
        let stored = payload::store(&self.output, &self.bytes);
        sqlx::query(include_str!("../../sql/effect_attempt_result.sql"))
            .bind(work.effect.effect_id)
            .bind(work.attempt)
            .bind(org_id)
            .bind(session.id())
            .bind(session.t())
            .bind(stored.jsonb_text)
            .bind(stored.raw)
            .bind(self.duration_ms)
            .bind(&work.effect.state)
            .execute(tx.conn())
            .await?;
        Ok(())
    }

    async fn store_result(&self, tx: &mut Tenant, work: &Work) -> Result<(), StepError> {
        let stored = payload::store(&self.output, &self.bytes);
        let (text, raw) = (Some(stored.jsonb_text.as_str()), stored.raw.as_deref());
        effects::store_result(tx, &work.effect, text, raw).await
    }
}

/// A settled entry whose effect turned out to have happened: a new one, with a new key, on top.
async fn new_entry(
    tx: &mut Tenant,
    session: &mut LockedSession,
    work: &mut Work,
    actor: &str,
) -> Result<(), StepError> {
    let Some(old) = &work.entry else {
        return Err(StepError::Corrupt(format!(
            "effect {} has no undo entry to follow",
            work.effect.effect_id
        )));
    };
    let mut entry = old.again_on_top(session, Uuid::now_v7());
    entry.attempt = work.attempt;
    undo::insert(tx, session, &entry, actor).await?;
    work.entry = Some(entry);
    Ok(())
}

/// The new entry waits for the end of the live rollback.
async fn owe(tx: &mut Tenant, work: &mut Work) -> Result<(), StepError> {
    match (&mut work.scoped.live, &work.entry) {
        (Some(live), Some(entry)) => rollback::owe(tx, live, entry).await,
        _ => Err(StepError::Corrupt("an entry is owed without a rollback".to_owned())),
    }
}

fn new_position(work: &Work) -> Result<i32, StepError> {
    let entry = work.entry.as_ref().ok_or_else(|| {
        StepError::Corrupt(format!("effect {}: no new undo entry", work.effect.effect_id))
    })?;
    Ok(entry.stack_position)
}

/// A failed entry that waited for this result goes back to work.
async fn requeue(
    tx: &mut Tenant,
    session: &mut LockedSession,
    work: &mut Work,
    actor: &str,
) -> Result<(), StepError> {
    if let Some(entry) = &mut work.entry {
        entry.retry(session, actor, json!({"cause": "late_commit"}))?;
        undo::save(tx, entry).await?;
    }
    if work.effect.state()? == undolog_core::state::EffectState::CompensationFailed {
        let event = EffectEvent::CompensationRetried;
        work.effect.apply(session, event, actor, json!({"cause": "late_commit"}))?;
        effects::save(tx, &work.effect).await?;
    }
    Ok(())
}

async fn earlier_attempt(
    tx: &mut Tenant,
    effect_id: Uuid,
    attempt: i32,
) -> Result<EarlierAttempt, StepError> {
    let org_id = tx.org_id();
    let row: Option<EarlierAttempt> = sqlx::query_as(
        "SELECT position, granted_at, operator_said, result_snapshot::text AS result_text, \
         result_snapshot_raw AS result_raw FROM undolog_effect_attempts \
         WHERE effect_id = $1 AND attempt = $2 AND org_id = $3",
    )
    .bind(effect_id)
    .bind(attempt)
    .bind(org_id)
    .fetch_optional(tx.conn())
    .await?;
    row.ok_or_else(|| StepError::Refused(Refusal::new(Reason::AttemptInvalid)))
}

/// Is there a settled entry whose compensation may be run again? Read only where the answer
/// matters.
async fn is_repeatable(
    tx: &mut Tenant,
    session: &LockedSession,
    work: &Work,
) -> Result<bool, StepError> {
    let Some(entry) = &work.entry else { return Ok(false) };
    if work.effect.tier()? != Tier::Compensable || entry.state()? != UndoState::Compensated {
        return Ok(false);
    }
    entry.is_repeatable(tx, session).await
}
