//! Projects: groups of agents inside an organisation.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use undolog_core::{limits::TEXT_BYTES_MAX, reason::Reason};
use uuid::Uuid;

use crate::{
    error::StepError,
    orgs::{self, is_name},
    owner::OwnerStore,
};

/// A project as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
#[expect(missing_docs, reason = "the columns are described in the schema")]
pub struct ProjectRow {
    pub project_id: Uuid,
    pub org_id: Uuid,
    pub name: String,
    pub description: Option<String>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// Creates a project.
pub async fn create(
    owner: &OwnerStore,
    org: &str,
    name: &str,
    description: &str,
) -> Result<ProjectRow, StepError> {
    let storable = description.len() <= TEXT_BYTES_MAX && !description.contains('\0');
    if !is_name(name) || !storable {
        return Err(StepError::refuse(
            Reason::InvalidArgument,
            "the project's name or description is blank, too long, or holds NUL",
        ));
    }
    let org = orgs::show(owner, org).await?;
    let row: Option<ProjectRow> = sqlx::query_as(
        "INSERT INTO undolog_projects (org_id, name, description) VALUES ($1, $2, NULLIF($3, '')) \
         ON CONFLICT (org_id, name) DO NOTHING RETURNING *",
    )
    .bind(org.org_id)
    .bind(name)
    .bind(description)
    .fetch_optional(owner.pool())
    .await?;
    row.ok_or_else(|| {
        StepError::refuse(
            Reason::RegistrationConflict,
            format!("there is a project {name} already"),
        )
    })
}

/// The projects of an organisation, by name.
pub async fn list(owner: &OwnerStore, org: &str) -> Result<Vec<ProjectRow>, StepError> {
    let org = orgs::show(owner, org).await?;
    Ok(sqlx::query_as("SELECT * FROM undolog_projects WHERE org_id = $1 ORDER BY name")
        .bind(org.org_id)
        .fetch_all(owner.pool())
        .await?)
}

/// One project by uuid or name.
pub async fn show(owner: &OwnerStore, org: &str, named: &str) -> Result<ProjectRow, StepError> {
    let org = orgs::show(owner, org).await?;
    let row: Option<ProjectRow> = sqlx::query_as(
        "SELECT * FROM undolog_projects WHERE org_id = $1 AND (project_id = $2 OR name = $3)",
    )
    .bind(org.org_id)
    .bind(Uuid::parse_str(named).ok())
    .bind(named.replace('\0', ""))
    .fetch_optional(owner.pool())
    .await?;
    row.ok_or_else(|| {
        StepError::refuse(Reason::ProjectNotFound, format!("there is no project {named}"))
    })
}
