//! Whose rollbacks wait while others have their share.

use uuid::Uuid;

use crate::{error::StepError, pool::Store};

/// How many are named: enough that handlers who look together find different ones.
const NAMED_MAX: i64 = 64;

/// Due rollbacks that nobody holds, of other organisations than these, the oldest first.
///
/// # Errors
/// The database could not be reached.
pub async fn due_of_others(store: &Store, orgs: &[Uuid]) -> Result<Vec<(Uuid, Uuid)>, StepError> {
    Ok(sqlx::query_as(include_str!("../../sql/walk_due_of_others.sql"))
        .bind(orgs)
        .bind(NAMED_MAX)
        .fetch_all(store.pool())
        .await?)
}
