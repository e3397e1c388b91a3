//! Approvals that nobody decided in time, and decisions that nobody used.

use uuid::Uuid;

use super::{ROWS_PER_RUN_MAX, Swept, due_orgs, left};
use crate::{
    approvals::{LapseApproval, TimeOut},
    error::StepError,
    pool::Store,
    tenant::Tenant,
};

/// Resolves the requests whose window is over, by their policy.
///
/// # Errors
/// The database could not be reached.
pub async fn approvals(store: &Store) -> Result<Swept, StepError> {
    let sql = include_str!("../../sql/sweep_approvals.sql");
    let mut swept = Swept::default();
    for org_id in due_orgs(store, "approval", 0).await? {
        for approval_id in due(store, org_id, sql).await? {
            crate::crash_point!("sweep.before_approval");
            match store.run(TimeOut { org_id, approval_id }).await {
                Ok(Some(state)) => {
                    let to = state.as_str();
                    metrics::counter!("undolog_approvals_timed_out_total", "to" => to).increment(1);
                    swept.settled += 1;
                }
                Ok(None) => {}
                Err(error) => swept.add(left("approvals", org_id, &error)),
            }
        }
    }
    Ok(swept)
}

/// Lets approvals lapse that were given a day ago and never used.
///
/// # Errors
/// The database could not be reached.
pub async fn lapses(store: &Store) -> Result<Swept, StepError> {
    let sql = include_str!("../../sql/sweep_lapses.sql");
    let mut swept = Swept::default();
    for org_id in due_orgs(store, "lapse", 0).await? {
        for approval_id in due(store, org_id, sql).await? {
            match store.run(LapseApproval { org_id, approval_id }).await {
                Ok(lapsed) => swept.settled += u64::from(lapsed),
                Err(error) => swept.add(left("lapses", org_id, &error)),
            }
        }
    }
    Ok(swept)
}

async fn due(store: &Store, org_id: Uuid, sql: &str) -> Result<Vec<Uuid>, StepError> {
    let mut tx = Tenant::begin(store, org_id).await?;
    let ids =
        sqlx::query_scalar(sql).bind(org_id).bind(ROWS_PER_RUN_MAX).fetch_all(tx.conn()).await?;
    tx.commit().await?;
    Ok(ids)
}
