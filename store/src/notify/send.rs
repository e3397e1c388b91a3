//! Sending: a notification is claimed under a lease and a fence, sent, and settled by both.

use serde_json::json;
use sqlx::FromRow;
use undolog_core::json::show_text;
use uuid::Uuid;

use crate::{
    error::StepError,
    pool::Store,
    tenant::Tenant,
    ticket::{TicketKind, ticket_ids},
};

/// The lease of one sending. It is longer than a call may take.
pub const LEASE_MS: i64 = 30_000;
/// Notifications of one organisation that are on their way at the same time, over all workers.
const IN_FLIGHT_MAX: i64 = 4;
/// How long a notification is tried.
const AGE_MS_MAX: i64 = 24 * 3_600_000;
/// Characters of an error that are kept.
const ERROR_CHARS_MAX: usize = 500;
/// Old rows that one statement deletes.
const DELETED_MAX: i64 = 1000;

/// A claimed notification.
#[derive(Debug, Clone, FromRow)]
pub struct Delivery {
    /// Its id: the same at every try.
    pub notification_id: Uuid,
    /// The number that settles it.
    pub fence: i64,
    /// This try, from 1.
    pub attempts: i32,
    /// What is sent.
    pub body_text: String,
    /// The database's clock in seconds: what is signed.
    pub sent_at_seconds: i64,
    /// How long it has been tried: since it was written, or since somebody had it sent again.
    pub age_ms: i64,
    /// Where it goes. `None`: the organisation wants none any more.
    pub webhook_url: Option<String>,
    /// The name of the secret that signs it.
    pub webhook_secret: Option<String>,
    /// The organisation's slug, for its secrets.
    pub org_slug: String,
}

/// What became of one try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver took it.
    Sent,
    /// It is tried again, unless it is too old.
    Retry {
        /// After so long.
        after_ms: i64,
        /// Why, for people; never a secret.
        error: String,
    },
    /// It is not tried again.
    Failed {
        /// Why.
        error: String,
    },
}

/// Claims the next due notification of an organisation. `None`: nothing is due, or enough are on
/// their way.
///
/// # Errors
/// The database could not be reached.
pub async fn claim(store: &Store, org_id: Uuid) -> Result<Option<Delivery>, StepError> {
    let mut tx = Tenant::begin(store, org_id).await?;
    let claimed = sqlx::query_as(include_str!("../../sql/notify_claim.sql"))
        .bind(org_id)
        .bind(LEASE_MS)
        .bind(IN_FLIGHT_MAX)
        .bind(!crate::guard!("notify.lease"))
        .fetch_optional(tx.conn())
        .await?;
    tx.commit().await?;
    Ok(claimed)
}

/// Writes down what became of a try. `None`: somebody else holds it now. Else its state.
///
/// # Errors
/// The database could not be reached; the lease then ends by itself, and it is sent again.
pub async fn settle(
    store: &Store,
    org_id: Uuid,
    delivery: &Delivery,
    outcome: &Outcome,
) -> Result<Option<&'static str>, StepError> {
    let (state, after_ms, error) = match outcome {
        Outcome::Sent => ("sent", 0, None),
        Outcome::Retry { after_ms, error } if delivery.age_ms < AGE_MS_MAX => {
            ("pending", *after_ms, Some(error))
        }
        Outcome::Retry { error, .. } | Outcome::Failed { error } => ("failed", 0, Some(error)),
    };
    let error = error.map(|text| {
        let short: String = text.chars().take(ERROR_CHARS_MAX).collect();
        show_text(&short).0
    });
    let mut tx = Tenant::begin(store, org_id).await?;
    let done = sqlx::query(include_str!("../../sql/notify_settle.sql"))
        .bind(delivery.notification_id)
        .bind(org_id)
        .bind(delivery.fence)
        .bind(state)
        .bind(after_ms)
        .bind(error)
        .execute(tx.conn())
        .await?;
    if state == "pending" {
        enqueue(&mut tx, after_ms).await?;
    }
    tx.commit().await?;
    Ok((done.rows_affected() == 1).then_some(state))
}

/// Issues the organisation's ticket, to be taken now.
///
/// # Errors
/// The database could not be reached.
pub async fn wake(store: &Store, org_id: Uuid) -> Result<(), StepError> {
    let mut tx = Tenant::begin(store, org_id).await?;
    enqueue(&mut tx, 0).await?;
    tx.commit().await
}

/// Issues the organisation's ticket, so that nothing due stays unseen. All of an organisation's
/// steps would wait for this one row, so none of them does this in its own transaction.
pub(crate) async fn enqueue(tx: &mut Tenant, after_ms: i64) -> Result<(), StepError> {
    let kind = TicketKind::Notification;
    let subject = tx.org_id().to_string();
    sqlx::query(
        "SELECT undolog_enqueue_one_of($1, $2, $3, \
         clock_timestamp() + $4 * interval '1 millisecond')",
    )
    .bind(ticket_ids(kind, &subject))
    .bind(kind.queue())
    .bind(json!({"kind": kind.as_str(), "subject": subject}))
    .bind(after_ms)
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Organisations with a due notification that nobody holds.
///
/// # Errors
/// The database could not be reached.
pub(crate) async fn due_orgs(store: &Store) -> Result<Vec<Uuid>, StepError> {
    Ok(sqlx::query_scalar(include_str!("../../sql/notify_due_orgs.sql"))
        .fetch_all(store.pool())
        .await?)
}

/// Organisations with notifications that were finished a week ago.
///
/// # Errors
/// The database could not be reached.
pub(crate) async fn old_orgs(store: &Store) -> Result<Vec<Uuid>, StepError> {
    Ok(sqlx::query_scalar(include_str!("../../sql/notify_old_orgs.sql"))
        .fetch_all(store.pool())
        .await?)
}

/// Deletes an organisation's old notifications, a bounded number.
///
/// # Errors
/// The database could not be reached.
pub(crate) async fn delete_old(store: &Store, org_id: Uuid) -> Result<u64, StepError> {
    let mut tx = Tenant::begin(store, org_id).await?;
    let done = sqlx::query(include_str!("../../sql/notify_delete_old.sql"))
        .bind(org_id)
        .bind(DELETED_MAX)
        .execute(tx.conn())
        .await?;
    tx.commit().await?;
    Ok(done.rows_affected())
}
