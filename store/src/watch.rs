//! Events as they are followed: those of one session by their number, those of an organisation in
//! an order in which no late commit can be skipped.
//!
//! Transactions commit in another order than they take their numbers, so a reader that follows the
//! newest row would skip one that commits late. The stream of an organisation is ordered by (epoch,
//! transaction, session, number) and shows only what lies below the snapshot's xmin: everything
//! there is decided for good. In a session the numbers are taken under its lock, so they need no
//! such care.

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::FromRow;
use undolog_core::{limits::PAGE_MAX, reason::Reason};
use uuid::Uuid;

use crate::{
    error::StepError,
    pool::Store,
    read::{
        only_of,
        page::{from_token, page_bytes, refused, to_token},
    },
    session,
    step::Caller,
    tenant::Tenant,
};

/// What is followed.
#[derive(Debug, Clone, Default)]
pub struct WatchRequest {
    /// One session; `None`: the whole organisation.
    pub session_id: Option<Uuid>,
    /// Go on after this event; empty: from the start.
    pub cursor: String,
    /// Start with what comes next. A cursor wins over it.
    pub from_now: bool,
}

/// An event as it is followed.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are those of the wire's Event")]
pub struct WatchedEvent {
    pub cursor: String,
    pub session_id: Uuid,
    pub seq: i64,
    pub kind: String,
    pub subject: String,
    pub subject_id: Uuid,
    pub from_state: Option<String>,
    pub to_state: Option<String>,
    pub attempt: Option<i32>,
    pub actor: String,
    pub occurred_at: DateTime<Utc>,
    /// A JSON object.
    pub detail: String,
}

#[derive(Debug, FromRow)]
struct EventRow {
    session_id: Uuid,
    seq: i64,
    epoch: i32,
    tx: String,
    kind: String,
    subject: String,
    subject_id: Uuid,
    from_state: Option<String>,
    to_state: Option<String>,
    attempt: Option<i32>,
    actor: String,
    occurred_at: DateTime<Utc>,
    detail: String,
}

/// A place in a stream of events, and the reading on from there.
#[derive(Debug, Clone)]
pub struct Watch {
    org_id: Uuid,
    at: At,
    started: Started,
}

#[derive(Debug, Clone)]
enum At {
    Session { session_id: Uuid, month: NaiveDate, seq: i64 },
    Org { epoch: i32, tx: String, session_id: Uuid, seq: i64 },
}

/// What an organisation's stream remembers of the moment when it started.
#[derive(Debug, Clone, Default)]
struct Started {
    /// What was visible then is over; only for a stream that starts with what comes next.
    over: Option<String>,
    /// The first transaction that had not begun then.
    xmax: Option<String>,
}

const SESSION: &str = "session-events";
const ORG: &str = "org-events";

impl Watch {
    /// Finds the place where a stream starts. An agent can follow its own sessions only.
    pub async fn open(
        store: &Store,
        caller: &Caller,
        request: &WatchRequest,
    ) -> Result<Self, StepError> {
        let mut tx = Tenant::begin(store, caller.org_id).await?;
        let opened = match request.session_id {
            Some(session_id) => session_start(&mut tx, caller, session_id, request)
                .await
                .map(|at| (at, Started::default())),
            None => org_start(&mut tx, caller, request).await,
        };
        tx.commit().await?;
        let (at, started) = opened?;
        Ok(Self { org_id: caller.org_id, at, started })
    }

    /// The session that is followed; `None`: the organisation.
    #[must_use]
    pub fn session_id(&self) -> Option<Uuid> {
        match &self.at {
            At::Session { session_id, .. } => Some(*session_id),
            At::Org { .. } => None,
        }
    }

    /// The organisation whose events these are.
    #[must_use]
    pub fn org_id(&self) -> Uuid {
        self.org_id
    }

    /// Whether everything that had begun when the stream started is decided by now. A history that
    /// is read to its end before that is not whole.
    pub async fn is_decided(&self, store: &Store) -> Result<bool, StepError> {
        let Some(xmax) = &self.started.xmax else { return Ok(true) };
        let mut tx = Tenant::begin(store, self.org_id).await?;
        let decided =
            sqlx::query_scalar("SELECT pg_snapshot_xmin(pg_current_snapshot()) >= $1::text::xid8")
                .bind(xmax)
                .fetch_one(tx.conn())
                .await?;
        tx.commit().await?;
        Ok(decided)
    }

    /// Whether events of the organisation were decided and are held back, because a transaction of
    /// the database cluster that began before them is still open. A session's events never are.
    pub async fn is_held_back(&self, store: &Store) -> Result<bool, StepError> {
        if matches!(self.at, At::Session { .. }) {
            return Ok(false);
        }
        let mut tx = Tenant::begin(store, self.org_id).await?;
        let held = sqlx::query_scalar(include_str!("../sql/watch_held.sql"))
            .bind(self.org_id)
            .fetch_one(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(held)
    }

    /// The next events, at most a page of them; none: everything that may be shown was read.
    pub async fn next(&mut self, store: &Store) -> Result<Vec<WatchedEvent>, StepError> {
        let mut tx = Tenant::begin(store, self.org_id).await?;
        let rows = self.read(&mut tx).await;
        tx.commit().await?;
        rows?.into_iter().map(|row| self.pass(row)).collect()
    }

    async fn read(&self, tx: &mut Tenant) -> Result<Vec<EventRow>, StepError> {
        let limit = i64::from(PAGE_MAX);
        let rows = match &self.at {
            At::Session { session_id, month, seq } => {
                sqlx::query_as(include_str!("../sql/watch_session.sql"))
                    .bind(self.org_id)
                    .bind(session_id)
                    .bind(month)
                    .bind(seq)
                    .bind(limit)
                    .bind(page_bytes())
                    .fetch_all(tx.conn())
                    .await?
            }
            At::Org { epoch, tx: transaction, session_id, seq } => {
                let settled = crate::guard!("watch.settled");
                sqlx::query_as(include_str!("../sql/watch_org.sql"))
                    .bind(self.org_id)
                    .bind(epoch)
                    .bind(transaction)
                    .bind(session_id)
                    .bind(seq)
                    .bind(limit)
                    .bind(page_bytes())
                    .bind(settled)
                    .bind(&self.started.over)
                    .fetch_all(tx.conn())
                    .await?
            }
        };
        Ok(rows)
    }

    /// Moves on past an event and gives it its cursor.
    fn pass(&mut self, row: EventRow) -> Result<WatchedEvent, StepError> {
        let cursor = match &mut self.at {
            At::Session { session_id, seq, .. } => {
                *seq = row.seq;
                to_token(SESSION, &(*session_id, row.seq))?
            }
            At::Org { epoch, tx, session_id, seq } => {
                *epoch = row.epoch;
                tx.clone_from(&row.tx);
                *session_id = row.session_id;
                *seq = row.seq;
                to_token(ORG, &(row.epoch, &row.tx, row.session_id, row.seq))?
            }
        };
        Ok(WatchedEvent {
            cursor,
            session_id: row.session_id,
            seq: row.seq,
            kind: row.kind,
            subject: row.subject,
            subject_id: row.subject_id,
            from_state: row.from_state,
            to_state: row.to_state,
            attempt: row.attempt,
            actor: row.actor,
            occurred_at: row.occurred_at,
            detail: row.detail,
        })
    }
}

async fn session_start(
    tx: &mut Tenant,
    caller: &Caller,
    session_id: Uuid,
    request: &WatchRequest,
) -> Result<At, StepError> {
    let found: Option<(NaiveDate, i64)> = sqlx::query_as(
        "SELECT session_month, event_seq FROM undolog_sessions \
         WHERE org_id = $1 AND session_id = $2 AND ($3::text IS NULL OR principal = $3)",
    )
    .bind(caller.org_id)
    .bind(session_id)
    .bind(only_of(caller))
    .fetch_optional(tx.conn())
    .await?;
    let (month, newest) = found.ok_or_else(|| session::not_found(session_id))?;
    let seq = if !request.cursor.is_empty() {
        let (of, seq): (Uuid, i64) = from_token(SESSION, &request.cursor)?;
        if of != session_id {
            return Err(refused());
        }
        seq
    } else if request.from_now {
        newest
    } else {
        0
    };
    Ok(At::Session { session_id, month, seq })
}

async fn org_start(
    tx: &mut Tenant,
    caller: &Caller,
    request: &WatchRequest,
) -> Result<(At, Started), StepError> {
    if caller.role.is_bound_to_own_sessions() && crate::guard!("watch.org") {
        return Err(StepError::refuse(
            Reason::PermissionDenied,
            "an agent follows its own sessions only; name one",
        ));
    }
    let (now_epoch, snapshot, xmin, xmax): (i32, String, String, String) = sqlx::query_as(
        "SELECT c.epoch, s::text, pg_snapshot_xmin(s)::text, pg_snapshot_xmax(s)::text \
         FROM undolog_cluster c, pg_current_snapshot() s",
    )
    .fetch_one(tx.conn())
    .await?;
    let mut started = Started { over: None, xmax: Some(xmax) };
    if !request.cursor.is_empty() {
        let (epoch, tx, session_id, seq): (i32, String, Uuid, i64) =
            from_token(ORG, &request.cursor)?;
        // Only digits reach the cast to a transaction's number.
        if tx.is_empty() || tx.len() > 19 || !tx.bytes().all(|b| b.is_ascii_digit()) {
            return Err(refused());
        }
        return Ok((At::Org { epoch, tx, session_id, seq }, started));
    }
    let (epoch, tx) = if request.from_now {
        // What is still undecided now comes next, whatever its number.
        started.over = Some(snapshot);
        (now_epoch, xmin)
    } else {
        (0, "0".to_owned())
    };
    Ok((At::Org { epoch, tx, session_id: Uuid::nil(), seq: 0 }, started))
}
