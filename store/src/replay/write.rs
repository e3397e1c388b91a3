//! Writing snapshots.

use chrono::{DateTime, Duration, NaiveDate, Utc};
use serde_json::json;
use sqlx::FromRow;
use undolog_core::limits::SNAPSHOT_EVERY;
use uuid::Uuid;

use super::{CallRow, format};
use crate::{
    error::{Decided, StepError},
    session::SessionRow,
    step::Step,
    tenant::Tenant,
    ticket::{self, TicketKind},
};

/// A ticket runs a moment later, so that nothing is notified in the transaction of a Commit.
const LATER_MS: i64 = 1000;
/// Calls that share a step can end two snapshots with one step; then the next one is longer. How
/// much longer it may get.
const SHARED_STEPS_MAX: i64 = 10;

/// What a run came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// A snapshot was written; there may be enough for another.
    Snapshot,
    /// Too little was committed since the last one.
    NotDue,
}

/// Has a snapshot written, in the transaction of the commit that makes it due.
pub(crate) async fn enqueue(tx: &mut Tenant, session: &SessionRow) -> Result<(), StepError> {
    let kind = TicketKind::Snapshot;
    let subject = session.session_id.to_string();
    let job = json!({"kind": kind.as_str(), "subject": subject, "org": session.org_id});
    let run_at = session.t + Duration::milliseconds(LATER_MS);
    ticket::enqueue(tx.conn(), kind, &subject, &job, run_at).await
}

/// Writes the next snapshot of a session, if enough was committed for one.
///
/// It takes no lock on the session: snapshot and rows are compared by the numbers of the session's
/// events. What it needs is that snapshots of one session are written one after the other, since
/// each says what it takes back of all before it.
#[derive(Debug, Clone, Copy)]
pub struct WriteSnapshot {
    /// The organisation.
    pub org_id: Uuid,
    /// The session.
    pub session_id: Uuid,
}

/// What the next snapshot is made of.
#[derive(Debug, FromRow)]
struct Found {
    seq: i64,
    /// `held`; `passed`: committed once, but not any more; `gone`: the same, and held by a
    /// snapshot.
    kind: String,
    #[sqlx(flatten)]
    call: CallRow,
}

impl Step for WriteSnapshot {
    type Reply = Written;
    const NAME: &'static str = "write_snapshot";

    fn org_id(&self) -> Uuid {
        self.org_id
    }

    fn session_id(&self) -> Option<Uuid> {
        Some(self.session_id)
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<Written>, StepError> {
        if crate::guard!("snapshot.lock") {
            sqlx::query(
                "SELECT pg_advisory_xact_lock(hashtextextended('undolog.snapshot:' || $1, 0))",
            )
            .bind(self.session_id.to_string())
            .execute(tx.conn())
            .await?;
        }
        // Calls that are recorded until the statement below are to be found, too.
        let session: Option<(NaiveDate, DateTime<Utc>, DateTime<Utc>)> = sqlx::query_as(
            "SELECT session_month, started_at, \
             greatest(clock_timestamp(), last_executed_at) + interval '1 hour' \
             FROM undolog_sessions \
             WHERE session_id = $1 AND org_id = $2 AND sealed_at IS NULL",
        )
        .bind(self.session_id)
        .bind(self.org_id)
        .fetch_optional(tx.conn())
        .await?;
        let Some((month, started_at, until)) = session else { return Ok(Ok(Written::NotDue)) };
        for more in 0..SHARED_STEPS_MAX {
            let wanted = i64::from(SNAPSHOT_EVERY) + more;
            let found: Vec<Found> = sqlx::query_as(include_str!("../../sql/snapshot_next.sql"))
                .bind(month)
                .bind(self.session_id)
                .bind(self.org_id)
                .bind(started_at)
                .bind(wanted)
                .bind(until)
                .fetch_all(tx.conn())
                .await?;
            let (gone, passed): (Vec<Found>, Vec<Found>) =
                found.into_iter().partition(|found| found.kind == "gone");
            if i64::try_from(passed.len()).unwrap_or(i64::MAX) < wanted {
                return Ok(Ok(Written::NotDue));
            }
            if self.write(tx, passed, &gone).await? {
                return Ok(Ok(Written::Snapshot));
            }
        }
        Ok(Ok(Written::NotDue))
    }
}

impl WriteSnapshot {
    async fn write(
        &self,
        tx: &mut Tenant,
        passed: Vec<Found>,
        gone: &[Found],
    ) -> Result<bool, StepError> {
        let up_to_step = passed.iter().map(|found| found.call.step_index).max();
        let event_seq = passed.iter().map(|found| found.seq).max();
        let held = passed.into_iter().filter(|found| found.kind == "held");
        let held = held.map(|found| found.call.replayed()).collect::<Result<Vec<_>, _>>()?;
        let ids: Vec<Uuid> = held.iter().map(|call| call.effect_id).collect();
        let bytes = format::encode(held)
            .map_err(|error| StepError::Corrupt(format!("a snapshot: {error}")))?;
        let done = sqlx::query(include_str!("../../sql/snapshot_insert.sql"))
            .bind(self.session_id)
            .bind(self.org_id)
            .bind(up_to_step)
            .bind(event_seq)
            .bind(ids)
            .bind(gone.iter().map(|found| found.call.effect_id).collect::<Vec<_>>())
            .bind(bytes)
            .execute(tx.conn())
            .await?;
        Ok(done.rows_affected() == 1)
    }
}
