//! Tickets: rows of the queue library that wake a worker up. Never the truth.

use chrono::{DateTime, Utc};
use serde_json::json;
use uuid::Uuid;

use crate::{error::StepError, tenant::Tenant};

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

/// The id of a ticket: a ULID text of BLAKE3(kind ‖ subject ‖ (fence + 1) & 1). At most two rows
/// per subject exist, and the acknowledgement of a running ticket, which goes by id alone, never
/// erases the one that its run issued.
pub fn ticket_id(kind: TicketKind, subject: &str, fence: i64) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(kind.as_str().as_bytes());
    hasher.update(&[0]);
    hasher.update(subject.as_bytes());
    hasher.update(&[0, u8::from(fence & 1 == 0)]);
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

/// Upserts the ticket of a rollback in the transaction that makes it due. `fence` is the rollback's
/// number at this moment.
pub async fn enqueue_rollback(
    tx: &mut Tenant,
    rollback_id: Uuid,
    fence: i64,
    due_at: DateTime<Utc>,
) -> Result<(), StepError> {
    let subject = rollback_id.to_string();
    let kind = TicketKind::Rollback;
    let job = json!({"kind": kind.as_str(), "subject": subject, "org": tx.org_id()});
    sqlx::query("SELECT undolog_enqueue($1, $2, $3, $4)")
        .bind(ticket_id(kind, &subject, fence))
        .bind(kind.queue())
        .bind(job)
        .bind(due_at)
        .execute(tx.conn())
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_ulids_and_alternate_with_the_fence() {
        let id = ticket_id(TicketKind::Rollback, "a", 0);
        assert_eq!(id.len(), 26);
        assert!(id.as_bytes()[0] <= b'7');
        assert_eq!(id, ticket_id(TicketKind::Rollback, "a", 2));
        assert_ne!(id, ticket_id(TicketKind::Rollback, "a", 1));
        assert_ne!(id, ticket_id(TicketKind::Schedule, "a", 0));
        assert_eq!(ulid_text(u128::MAX), "7ZZZZZZZZZZZZZZZZZZZZZZZZZ");
    }
}
