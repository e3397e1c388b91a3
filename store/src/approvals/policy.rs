//! The policy of a request, fixed when asked: from the tool, the project or the organisation.

use sqlx::FromRow;
use uuid::Uuid;

use crate::{error::StepError, session::LockedSession, tenant::Tenant};

/// How a request will be decided.
#[derive(Debug, Clone, FromRow)]
pub(crate) struct Policy {
    pub(crate) timeout_seconds: i32,
    pub(crate) auto_approve_on_timeout: bool,
    pub(crate) quorum: i32,
    pub(crate) requester_may_approve: bool,
}

/// Reads the policy of a call. A tag that the organisation never approves automatically wins.
pub(crate) async fn policy(
    tx: &mut Tenant,
    session: &LockedSession,
    tool_id: Option<Uuid>,
    risk_tags: &[String],
) -> Result<Policy, StepError> {
    let org_id = tx.org_id();
    Ok(sqlx::query_as(include_str!("../../sql/approval_policy.sql"))
        .bind(org_id)
        .bind(tool_id)
        .bind(session.row.project_id)
        .bind(risk_tags)
        .fetch_one(tx.conn())
        .await?)
}
