//! Webhooks that were given up: listed, and sent again when somebody has mended the receiver.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use undolog_core::{limits::PAGE_MAX, reason::Reason, role::Rpc};
use uuid::Uuid;

use super::require_role;
use crate::{
    error::{Decided, StepError},
    pool::Store,
    read::{Page, Paging, page::time_of},
    step::{Caller, Step},
    tenant::Tenant,
};

/// The states of a notification.
const STATES: [&str; 3] = ["pending", "sent", "failed"];

/// A notification as it is listed.
#[derive(Debug, Clone, FromRow)]
#[expect(missing_docs, reason = "the fields are those of the wire's Notification")]
pub struct NotificationView {
    pub notification_id: Uuid,
    pub session_id: Uuid,
    pub kind: String,
    pub state: String,
    /// JSON, as it is sent.
    pub body: String,
    pub attempts: i32,
    pub last_error: Option<String>,
    pub created_at: DateTime<Utc>,
    pub due_at: DateTime<Utc>,
    pub finished_at: Option<DateTime<Utc>>,
    pub replayed_at: Option<DateTime<Utc>>,
    pub replayed_by: Option<String>,
}

/// Notifications in these states, the newest first; no state means those that were given up.
///
/// # Errors
/// A state or the page is refused, or the database could not be reached.
pub async fn list_notifications(
    store: &Store,
    caller: &Caller,
    states: &[String],
    paging: &Paging,
) -> Result<Page<NotificationView>, StepError> {
    require_role(caller, Rpc::ListNotifications)?;
    if let Some(other) = states.iter().find(|state| !STATES.contains(&state.as_str())) {
        let why = format!("{other:?} is no state of a notification");
        return Err(StepError::refuse(Reason::InvalidArgument, why));
    }
    let given_up = ["failed".to_owned()];
    let states = if states.is_empty() { given_up.as_slice() } else { states };
    let limit = paging.rows()?;
    let (micros, notification_id) = paging.after::<(i64, Uuid)>("notifications")?.unzip();
    let before = micros.map(time_of).transpose()?;
    let mut tx = Tenant::begin(store, caller.org_id).await?;
    let rows: Vec<NotificationView> = sqlx::query_as(include_str!("../../sql/notify_list.sql"))
        .bind(caller.org_id)
        .bind(states)
        .bind(before)
        .bind(notification_id)
        .bind(limit + 1)
        .fetch_all(tx.conn())
        .await?;
    tx.commit().await?;
    let matched = i64::try_from(rows.len()).unwrap_or(i64::MAX);
    Page::cut("notifications", rows, limit, matched, |row| {
        (row.created_at.timestamp_micros(), row.notification_id)
    })
}

/// Has notifications that were given up sent again, under the same ids and for another day.
#[derive(Debug, Clone)]
pub struct ReplayNotifications {
    /// Who decides.
    pub caller: Caller,
    /// Which; `None`: every one that was given up, the oldest first, as many as one call takes.
    pub notification_ids: Option<Vec<Uuid>>,
}

/// What is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    /// How many.
    pub replayed: usize,
    /// There can be more than one call takes.
    pub more: bool,
}

impl Step for ReplayNotifications {
    type Reply = Replayed;
    const NAME: &'static str = "replay_notifications";

    fn org_id(&self) -> Uuid {
        self.caller.org_id
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<Replayed>, StepError> {
        require_role(&self.caller, Rpc::ReplayNotifications)?;
        let most = PAGE_MAX as usize;
        if self.notification_ids.as_ref().is_some_and(|ids| ids.is_empty() || ids.len() > most) {
            let why = format!("name 1 to {most} notifications, or all of them");
            return Err(StepError::refuse(Reason::InvalidArgument, why));
        }
        let org_id = tx.org_id();
        let done = sqlx::query(include_str!("../../sql/notify_replay.sql"))
            .bind(org_id)
            .bind(self.notification_ids.as_deref())
            .bind(&self.caller.principal)
            .bind(i64::from(PAGE_MAX))
            .execute(tx.conn())
            .await?;
        let replayed = usize::try_from(done.rows_affected()).unwrap_or(usize::MAX);
        if replayed > 0 {
            tx.tell_afterwards();
            tracing::warn!(
                org.id = %org_id, by = self.caller.principal, replayed,
                "notifications are sent again"
            );
        }
        Ok(Ok(Replayed { replayed, more: replayed == most }))
    }
}
