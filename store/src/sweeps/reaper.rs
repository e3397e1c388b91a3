//! The reaper: a due rollback that nobody holds gets a ticket again. It makes every loss of a
//! ticket a delay.

use serde_json::{Value, json};
use undolog_core::limits::ROLLBACK_LEASE_MS;
use uuid::Uuid;

use super::{ROWS_PER_RUN_MAX, Swept};
use crate::{
    error::StepError,
    pool::Store,
    ticket::{TicketKind, ticket_ids},
};

/// Rollbacks that wait are counted up to this number.
const WAITING_COUNTED_MAX: i64 = 10_000;

/// Rows of one kind that one run repairs after a step of the clock; the next run goes on.
const REWOUND_MAX: i32 = 20_000;

/// Repairs what a step of the clock left behind, and issues the missing tickets.
///
/// # Errors
/// The database could not be reached.
pub async fn reaper(store: &Store) -> Result<Swept, StepError> {
    rewind(store).await?;
    let due: Vec<(Uuid, Uuid, i64, i64)> = sqlx::query_as(include_str!("../../sql/reaper_due.sql"))
        .bind(ROWS_PER_RUN_MAX)
        .fetch_all(store.pool())
        .await?;
    let oldest_ms = due.first().map_or(0, |(_, _, _, age_ms)| *age_ms);
    #[expect(clippy::cast_precision_loss, reason = "a gauge of seconds")]
    metrics::gauge!("undolog_rollback_oldest_due_seconds").set(oldest_ms as f64 / 1000.0);
    #[expect(clippy::cast_precision_loss, reason = "a gauge of few rows")]
    metrics::gauge!("undolog_rollbacks_due").set(due.len() as f64);
    let waiting: i64 = sqlx::query_scalar(include_str!("../../sql/reaper_waiting.sql"))
        .bind(WAITING_COUNTED_MAX)
        .fetch_one(store.pool())
        .await?;
    #[expect(clippy::cast_precision_loss, reason = "a gauge of few rows")]
    metrics::gauge!("undolog_rollbacks_waiting").set(waiting as f64);
    if due.is_empty() {
        return Ok(Swept::default());
    }
    let kind = TicketKind::Rollback;
    // A statement takes one array of ids, so each rollback's stand in one text.
    let (ids, jobs): (Vec<String>, Vec<Value>) = due
        .iter()
        .map(|(org_id, rollback_id, ..)| {
            let subject = rollback_id.to_string();
            let job = json!({"kind": kind.as_str(), "subject": subject, "org": org_id});
            (ticket_ids(kind, &subject).join(","), job)
        })
        .unzip();
    sqlx::query(include_str!("../../sql/reaper.sql"))
        .bind(kind.queue())
        .bind(ids)
        .bind(jobs)
        .execute(store.pool())
        .await?;
    crate::crash_point!("sweep.after_reaper");
    Ok(Swept { settled: due.len() as u64, left: 0 })
}

/// Repairs the times that a clock which stepped back left ahead of it, so that nothing waits longer
/// than was meant.
async fn rewind(store: &Store) -> Result<(), StepError> {
    let changed: i64 = sqlx::query_scalar("SELECT undolog_rewind($1, $2)")
        .bind(ROLLBACK_LEASE_MS as i64)
        .bind(REWOUND_MAX)
        .fetch_one(store.pool())
        .await?;
    if changed > 0 {
        metrics::counter!("undolog_clock_repairs_total").increment(changed.unsigned_abs());
        tracing::warn!(
            changed,
            "the database's clock stepped back; times ahead of it were repaired"
        );
    }
    Ok(())
}
