//! Whose rollbacks wait while others have their share.

use std::sync::Mutex;

use uuid::Uuid;

use crate::{error::StepError, pool::Store};

/// How many are named: enough that handlers who look together find different ones.
const NAMED_MAX: i64 = 64;

/// The organisation that was looked at last by this process: the next look goes on behind it, so
/// that each gets its turn however many there are. Losing it costs nothing.
static LAST: Mutex<Uuid> = Mutex::new(Uuid::nil());

/// Due rollbacks that nobody holds, of other organisations than these. The oldest come first among
/// the organisations that have their turn now.
///
/// # Errors
/// The database could not be reached.
pub async fn due_of_others(store: &Store, orgs: &[Uuid]) -> Result<Vec<(Uuid, Uuid)>, StepError> {
    let after = LAST.lock().map_or_else(|_| Uuid::nil(), |last| *last);
    let due: Vec<(Uuid, Uuid)> = sqlx::query_as(include_str!("../../sql/walk_due_of_others.sql"))
        .bind(orgs)
        .bind(NAMED_MAX)
        .bind(after)
        .fetch_all(store.pool())
        .await?;
    if let (Some((org_id, _)), Ok(mut last)) = (due.first(), LAST.lock()) {
        *last = *org_id;
    }
    Ok(due)
}
