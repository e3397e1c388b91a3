//! Bulk verbs over dead letters: one transaction per session, so that what is put back to work
//! together is undone in the stack's order whoever is quick to claim it.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use undolog_core::{
    limits::{LIST_READ_MAX, PAGE_MAX},
    reason::{Reason, Refusal},
};
use uuid::Uuid;

use super::{
    filter::{DeadLetterFilter, wanted},
    letter::{Action, not_found},
    require_role,
};
use crate::{
    error::{Decided, StepError},
    pool::Store,
    session::LockedSession,
    step::{Caller, Step},
    tenant::Tenant,
};

/// How dead letters are put back to work.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetryOptions {
    /// Other arguments, as JSON; `None`: those of the entry. Only for one dead letter by its id.
    pub args: Option<Vec<u8>>,
    /// Under a new key.
    pub fresh_key: bool,
    /// A note for people; may be empty.
    pub note: String,
}

/// What became of one dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The dead letter.
    pub dead_letter_id: Uuid,
    /// Its session; `None` when there is no such dead letter.
    pub session_id: Option<Uuid>,
    /// Why it was not changed; `None`: it was (in a dry run: it would be).
    pub refused: Option<Refusal>,
}

impl Change {
    /// It was changed, or would be.
    #[must_use]
    pub const fn is_changed(&self) -> bool {
        self.refused.is_none()
    }

    /// The reason's code; `None`: it was changed.
    #[must_use]
    pub fn why_not(&self) -> Option<Reason> {
        self.refused.as_ref().map(|refusal| refusal.reason)
    }
}

/// What a bulk verb did, or would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// Each dead letter that was looked at.
    pub changes: Vec<Change>,
    /// There are more than one call takes. Those that can be changed come first, so a call that
    /// changes none is the last that makes sense.
    pub more: bool,
    /// When it was looked at what fits.
    pub as_of: DateTime<Utc>,
}

impl Changed {
    /// How many were changed, or would be.
    #[must_use]
    pub fn changed(&self) -> usize {
        self.changes.iter().filter(|change| change.is_changed()).count()
    }
}

/// Puts dead letters back to work.
///
/// # Errors
/// The filter or the options are refused, or the database could not be reached.
pub async fn retry_all(
    store: &Store,
    caller: &Caller,
    filter: &DeadLetterFilter,
    options: RetryOptions,
    dry_run: bool,
) -> Result<Changed, StepError> {
    if options.args.is_some() && filter.dead_letter_ids.len() != 1 {
        let why = "edited arguments go to one dead letter, named by its id";
        return Err(StepError::refuse(Reason::InvalidArgument, why));
    }
    all(store, caller, filter, Action::Retry(options), dry_run).await
}

/// Skips dead letters for a reason.
///
/// # Errors
/// The filter or the reason is refused, or the database could not be reached.
pub async fn skip_all(
    store: &Store,
    caller: &Caller,
    filter: &DeadLetterFilter,
    reason: String,
    dry_run: bool,
) -> Result<Changed, StepError> {
    all(store, caller, filter, Action::Skip(reason), dry_run).await
}

/// Settles dead letters by hand.
///
/// # Errors
/// The filter or the note is refused, or the database could not be reached.
pub async fn resolve_all(
    store: &Store,
    caller: &Caller,
    filter: &DeadLetterFilter,
    note: String,
    dry_run: bool,
) -> Result<Changed, StepError> {
    all(store, caller, filter, Action::Resolve(note), dry_run).await
}

#[derive(Debug, Clone, FromRow)]
struct Candidate {
    dead_letter_id: Uuid,
    session_id: Uuid,
    /// The verb can change it, as far as it can be seen.
    is_possible: bool,
}

async fn all(
    store: &Store,
    caller: &Caller,
    filter: &DeadLetterFilter,
    action: Action,
    dry_run: bool,
) -> Result<Changed, StepError> {
    require_role(caller, action.rpc())?;
    filter.check_bulk()?;
    action.check()?;
    let (mut candidates, as_of) = candidates(store, caller, filter, &action).await?;
    let more = candidates.len() > PAGE_MAX as usize;
    candidates.truncate(PAGE_MAX as usize);
    let mut changes = Vec::new();
    for group in by_session(&candidates) {
        let step = OneSession {
            caller: caller.clone(),
            session_id: group[0].session_id,
            dead_letter_ids: group.iter().map(|c| c.dead_letter_id).collect(),
            action: action.clone(),
        };
        let outcome =
            if dry_run { try_out(store, &step).await } else { store.run(step.clone()).await };
        changes.extend(of_session(&step, outcome)?);
    }
    let missing = filter
        .dead_letter_ids
        .iter()
        .filter(|id| !changes.iter().any(|change: &Change| change.dead_letter_id == **id));
    let missing: Vec<_> = missing.map(|id| unknown_id(*id)).collect();
    changes.extend(missing);
    Ok(Changed { changes, more, as_of })
}

/// What one session's step came to. A row of it that cannot be read stops neither the others nor
/// the answer.
fn of_session(
    step: &OneSession,
    outcome: Result<Vec<Change>, StepError>,
) -> Result<Vec<Change>, StepError> {
    let refusal = match outcome {
        Ok(changes) => return Ok(changes),
        Err(StepError::Refused(refusal)) => refusal,
        Err(StepError::Corrupt(why)) => {
            tracing::error!(session.id = %step.session_id, why, "dead letters cannot be settled");
            Refusal::new(Reason::Internal)
        }
        Err(error) => return Err(error),
    };
    let refused = step.dead_letter_ids.iter().map(|id| Change {
        dead_letter_id: *id,
        session_id: Some(step.session_id),
        refused: Some(refusal.clone()),
    });
    Ok(refused.collect())
}

fn unknown_id(dead_letter_id: Uuid) -> Change {
    let refused = match not_found(dead_letter_id) {
        StepError::Refused(refusal) => refusal,
        _ => Refusal::new(Reason::DeadLetterNotFound),
    };
    Change { dead_letter_id, session_id: None, refused: Some(refused) }
}

/// Runs a step and takes everything back.
async fn try_out(store: &Store, step: &OneSession) -> Result<Vec<Change>, StepError> {
    crate::step::try_out(store, step).await?.map_err(StepError::Refused)
}

/// Neighbours of one session.
fn by_session(candidates: &[Candidate]) -> impl Iterator<Item = &[Candidate]> {
    candidates.chunk_by(|a, b| a.session_id == b.session_id)
}

/// What the verb is about: those that it can change first, those of a session together.
async fn candidates(
    store: &Store,
    caller: &Caller,
    filter: &DeadLetterFilter,
    action: &Action,
) -> Result<(Vec<Candidate>, DateTime<Utc>), StepError> {
    let mut tx = Tenant::begin(store, caller.org_id).await?;
    let as_of: DateTime<Utc> =
        sqlx::query_scalar("SELECT clock_timestamp()").fetch_one(tx.conn()).await?;
    let until = filter.created_until.filter(|_| crate::guard!("operate.until")).unwrap_or(as_of);
    if filter.ids_param().is_some() || filter.session_id.is_some() {
        let of: Vec<Uuid> = filter.session_id.into_iter().collect();
        let rows = fitting(&mut tx, filter, action, &of, until).await?;
        tx.commit().await?;
        return Ok((rows, as_of));
    }
    let (mut possible, mut others) = (Vec::new(), Vec::new());
    let mut after = None;
    while possible.len() <= PAGE_MAX as usize {
        let (sessions, is_last) = sessions_after(&mut tx, until, after).await?;
        after = sessions.last().copied();
        let rows = fitting(&mut tx, filter, action, &sessions, until).await?;
        let (can, cannot): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.is_possible);
        possible.extend(can);
        others.extend(cannot);
        others.truncate(PAGE_MAX as usize + 1);
        if is_last {
            break;
        }
    }
    tx.commit().await?;
    possible.extend(others);
    Ok((possible, as_of))
}

/// Whole sessions with open dead letters, in the order of their ids, of about as many letters as
/// one statement may read, and whether they are the last.
async fn sessions_after(
    tx: &mut Tenant,
    until: DateTime<Utc>,
    after: Option<Uuid>,
) -> Result<(Vec<Uuid>, bool), StepError> {
    let org_id = tx.org_id();
    let mut sessions: Vec<Uuid> =
        sqlx::query_scalar(include_str!("../../sql/operate_bulk_next.sql"))
            .bind(org_id)
            .bind(until)
            .bind(after)
            .bind(i64::from(LIST_READ_MAX))
            .fetch_all(tx.conn())
            .await?;
    let is_last = sessions.len() < LIST_READ_MAX as usize;
    sessions.dedup();
    // The last one may have more letters; alone, it is read whole.
    if !is_last && sessions.len() > 1 {
        sessions.pop();
    }
    Ok((sessions, is_last))
}

async fn fitting(
    tx: &mut Tenant,
    filter: &DeadLetterFilter,
    action: &Action,
    sessions: &[Uuid],
    until: DateTime<Utc>,
) -> Result<Vec<Candidate>, StepError> {
    let org_id = tx.org_id();
    Ok(sqlx::query_as(include_str!("../../sql/operate_bulk.sql"))
        .bind(org_id)
        .bind(filter.ids_param())
        .bind(sessions)
        .bind(wanted(&filter.tool_name))
        .bind(wanted(&filter.compensation_fn))
        .bind(wanted(&filter.reason))
        .bind(i64::from(filter.older_than_seconds))
        .bind(filter.includes_settled())
        .bind(matches!(action, Action::Resolve(_)))
        .bind(i64::from(PAGE_MAX) + 1)
        .bind(until)
        .fetch_all(tx.conn())
        .await?)
}

/// The dead letters of one session, from the lowest position up: what is put on top again then
/// stands in the order in which it stood.
#[derive(Debug, Clone)]
struct OneSession {
    caller: Caller,
    session_id: Uuid,
    dead_letter_ids: Vec<Uuid>,
    action: Action,
}

impl Step for OneSession {
    type Reply = Vec<Change>;
    const NAME: &'static str = "settle_dead_letters";

    fn org_id(&self) -> Uuid {
        self.caller.org_id
    }

    fn session_id(&self) -> Option<Uuid> {
        Some(self.session_id)
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<Vec<Change>>, StepError> {
        let mut session = LockedSession::require(tx, self.session_id, &self.caller).await?;
        let mut changes = Vec::with_capacity(self.dead_letter_ids.len());
        let mut ids = self.dead_letter_ids.clone();
        if !crate::guard!("operate.lifo") {
            ids.reverse();
        }
        for dead_letter_id in ids {
            let actor = &self.caller.principal;
            let refused = match self.action.apply(tx, &mut session, dead_letter_id, actor).await {
                Ok(()) => None,
                Err(StepError::Refused(refusal)) => Some(refusal),
                Err(error) => return Err(error),
            };
            changes.push(Change { dead_letter_id, session_id: Some(self.session_id), refused });
        }
        session.save(tx).await?;
        Ok(Ok(changes))
    }
}
