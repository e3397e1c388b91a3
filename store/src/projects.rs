//! Projects as the engine sees them: by name or id, inside the organisation of a step.

use undolog_core::reason::Reason;
use uuid::Uuid;

use crate::{error::StepError, tenant::Tenant};

/// The project that a request names by uuid or name; empty: none.
pub async fn resolve(tx: &mut Tenant, named: &str) -> Result<Option<Uuid>, StepError> {
    if named.is_empty() {
        return Ok(None);
    }
    let org_id = tx.org_id();
    // A name with NUL cannot exist, and Postgres would refuse the parameter.
    let found: Option<Uuid> = sqlx::query_scalar(
        "SELECT project_id FROM undolog_projects \
         WHERE org_id = $1 AND (project_id = $2 OR name = $3)",
    )
    .bind(org_id)
    .bind(Uuid::parse_str(named).ok())
    .bind((!named.contains('\0')).then_some(named))
    .fetch_optional(tx.conn())
    .await?;
    found.map(Some).ok_or_else(|| {
        StepError::refuse(Reason::ProjectNotFound, format!("there is no project {named}"))
    })
}
