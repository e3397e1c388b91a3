//! Keeps the queue's tables small.

use super::{ROWS_PER_RUN_MAX, Swept};
use crate::{error::StepError, pool::Store, ticket::QUEUES};

/// Batches of one run: a million rows, more than can be made between two runs. After an outage the
/// rest waits for the next slot.
const BATCHES_MAX: u32 = 1_000;

/// Deletes tickets that are over and workers that are gone.
///
/// # Errors
/// The database could not be reached.
pub async fn cleanup(store: &Store) -> Result<Swept, StepError> {
    let mut swept = Swept::default();
    for statement in [
        include_str!("../../sql/cleanup_tickets.sql"),
        include_str!("../../sql/cleanup_workers.sql"),
    ] {
        for _ in 0..BATCHES_MAX {
            let done = sqlx::query(statement)
                .bind(QUEUES.as_slice())
                .bind(ROWS_PER_RUN_MAX)
                .execute(store.pool())
                .await?;
            swept.settled += done.rows_affected();
            if done.rows_affected() < ROWS_PER_RUN_MAX.unsigned_abs() {
                break;
            }
        }
    }
    Ok(swept)
}
