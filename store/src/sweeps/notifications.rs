//! Notifications whose ticket was lost get one again, and old ones go.

use super::{Swept, left};
use crate::{error::StepError, notify, pool::Store};

/// Issues the missing tickets and deletes what is old.
///
/// # Errors
/// The database could not be reached.
pub async fn notifications(store: &Store) -> Result<Swept, StepError> {
    let mut swept = Swept::default();
    for org_id in notify::due_orgs(store).await? {
        notify::wake(store, org_id).await?;
    }
    for org_id in notify::old_orgs(store).await? {
        match notify::delete_old(store, org_id).await {
            Ok(deleted) => swept.settled += deleted,
            Err(error) => swept.add(left("notifications", org_id, &error)),
        }
    }
    Ok(swept)
}
