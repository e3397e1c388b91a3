//! Tickets: rows of the queue library that wake a worker up. Never the truth.

use apalis_sql::from_row::SqlRequest;
use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{error::StepError, pool::Store, tenant::Tenant};

/// The queue of rollbacks.
pub const QUEUE_ROLLBACK: &str = "undolog.rollback";
/// The queue of sweeps and upkeep, so that these cannot starve compensations.
pub const QUEUE_MAINTENANCE: &str = "undolog.maintenance";

/// The queue of notifications, so that a slow receiver holds up nothing else.
pub const QUEUE_NOTIFICATION: &str = "undolog.notification";
/// Every queue.
pub const QUEUES: [&str; 3] = [QUEUE_ROLLBACK, QUEUE_MAINTENANCE, QUEUE_NOTIFICATION];

/// What a ticket is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TicketKind {
    /// A rollback is due.
    Rollback,
    /// A schedule's slot is due.
    Schedule,
    /// An organisation has notifications to be sent.
    Notification,
    /// Enough was committed in a session for a snapshot.
    Snapshot,
}

impl TicketKind {
    /// The name in the job's payload.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rollback => "rollback",
            Self::Schedule => "schedule",
            Self::Notification => "notification",
            Self::Snapshot => "snapshot",
        }
    }

    /// The queue that carries it.
    pub fn queue(self) -> &'static str {
        match self {
            Self::Rollback => QUEUE_ROLLBACK,
            Self::Schedule | Self::Snapshot => QUEUE_MAINTENANCE,
            Self::Notification => QUEUE_NOTIFICATION,
        }
    }
}

/// Tickets that one subject has at most. One is run, and its run issues another; one more can be
/// run by a handler that finds nothing to do, because the work was claimed without a ticket.
const TICKETS: u8 = 3;

/// The ids of a subject's tickets: ULID texts of BLAKE3(kind ‖ subject ‖ number). At most so many
/// rows exist per subject; which one is taken is decided where it is written, since the
/// acknowledgement of a running ticket goes by its id alone and must not erase the next one.
pub fn ticket_ids(kind: TicketKind, subject: &str) -> Vec<String> {
    (0..TICKETS).map(|number| ticket_id(kind, subject, number)).collect()
}

fn ticket_id(kind: TicketKind, subject: &str, number: u8) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(kind.as_str().as_bytes());
    hasher.update(&[0]);
    hasher.update(subject.as_bytes());
    hasher.update(&[0, number]);
    let mut first = [0_u8; 16];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    ulid_text(u128::from_be_bytes(first))
}

/// 128 bits as 26 characters of Crockford's base 32, the first at most 7.
fn ulid_text(mut bits: u128) -> String {
    const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let mut text = [b'0'; 26];
    for place in text.iter_mut().rev() {
        *place = ALPHABET[(bits & 31) as usize];
        bits >>= 5;
    }
    text.iter().map(|&byte| char::from(byte)).collect()
}

/// Upserts the ticket of a rollback in the transaction that makes it due.
pub async fn enqueue_rollback(
    tx: &mut Tenant,
    rollback_id: Uuid,
    due_at: DateTime<Utc>,
) -> Result<(), StepError> {
    let subject = rollback_id.to_string();
    let kind = TicketKind::Rollback;
    let job = json!({"kind": kind.as_str(), "subject": subject, "org": tx.org_id()});
    enqueue(tx.conn(), kind, &subject, &job, due_at).await
}

/// Upserts a ticket of a subject.
pub(crate) async fn enqueue(
    conn: &mut PgConnection,
    kind: TicketKind,
    subject: &str,
    job: &Value,
    run_at: DateTime<Utc>,
) -> Result<(), StepError> {
    sqlx::query("SELECT undolog_enqueue_one_of($1, $2, $3, $4)")
        .bind(ticket_ids(kind, subject))
        .bind(kind.queue())
        .bind(job)
        .bind(run_at)
        .execute(conn)
        .await?;
    Ok(())
}

/// Takes due tickets of a queue for one of the queue library's workers, as the library does by
/// itself at each poll.
///
/// # Errors
/// The database could not be reached.
pub async fn fetch(
    store: &Store,
    worker: &str,
    queue: &str,
    count: i32,
) -> Result<Vec<SqlRequest<Value>>, StepError> {
    Ok(sqlx::query_as("SELECT * FROM apalis.get_jobs($1, $2, $3)")
        .bind(worker)
        .bind(queue)
        .bind(count)
        .fetch_all(store.pool())
        .await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_ulids_and_few() {
        let ids = ticket_ids(TicketKind::Rollback, "a");
        assert_eq!(ids.len(), usize::from(TICKETS));
        for id in &ids {
            assert_eq!(id.len(), 26);
            assert!(id.as_bytes()[0] <= b'7');
        }
        assert_ne!(ids[0], ids[1]);
        assert_ne!(ids, ticket_ids(TicketKind::Schedule, "a"));
        assert_eq!(ulid_text(u128::MAX), "7ZZZZZZZZZZZZZZZZZZZZZZZZZ");
    }
}
