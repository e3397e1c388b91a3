//! Projects: groups of agent deployments inside an organisation.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use undolog_core::reason::Reason;
use uuid::Uuid;

use super::{Owner, refuse_violation};
use crate::error::StepError;

/// A project.
#[derive(Debug, Clone, PartialEq, FromRow)]
#[expect(missing_docs, reason = "the columns are described in the schema")]
pub struct ProjectRow {
    pub project_id: Uuid,
    pub org_id: Uuid,
    pub name: String,
    pub description: Option<String>,
    pub created_at: DateTime<Utc>,
}

const VIOLATIONS: [(&str, Reason, &str); 1] = [(
    "undolog_projects_org_name_unique",
    Reason::RegistrationConflict,
    "a project with this name exists already",
)];

impl Owner {
    /// Makes a project.
    pub async fn create_project(
        &mut self,
        org_id: Uuid,
        name: &str,
        description: Option<&str>,
    ) -> Result<ProjectRow, StepError> {
        let made = sqlx::query_as(
            "INSERT INTO undolog_projects (org_id, name, description) VALUES ($1, $2, $3) \
             RETURNING project_id, org_id, name, description, created_at",
        )
        .bind(org_id)
        .bind(name)
        .bind(description)
        .fetch_one(&mut self.conn)
        .await;
        made.map_err(|error| refuse_violation(error, &VIOLATIONS))
    }

    /// An organisation's projects, by name.
    pub async fn projects(&mut self, org_id: Uuid) -> Result<Vec<ProjectRow>, StepError> {
        let rows = sqlx::query_as(
            "SELECT project_id, org_id, name, description, created_at FROM undolog_projects \
             WHERE org_id = $1 ORDER BY name",
        );
        Ok(rows.bind(org_id).fetch_all(&mut self.conn).await?)
    }
}
