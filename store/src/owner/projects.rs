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
    pub updated_at: DateTime<Utc>,
    /// `None` here and below: the organisation's.
    pub approval_timeout_seconds: Option<i32>,
    pub auto_approve_on_timeout: Option<bool>,
    pub approval_quorum: Option<i32>,
}

/// What to change of a project's policies; `None` leaves a value as it is, and the inner `None`
/// leaves the decision to the organisation.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(missing_docs, reason = "the columns are described in the schema")]
pub struct ProjectChange {
    pub approval_timeout_seconds: Option<Option<i32>>,
    pub auto_approve_on_timeout: Option<Option<bool>>,
    pub approval_quorum: Option<Option<i32>>,
}

const COLUMNS: &str = "project_id, org_id, name, description, created_at, updated_at, \
    approval_timeout_seconds, auto_approve_on_timeout, approval_quorum";

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
        let sql = format!(
            "INSERT INTO undolog_projects (org_id, name, description) VALUES ($1, $2, $3) \
             RETURNING {COLUMNS}"
        );
        let made = sqlx::query_as(&sql)
            .bind(org_id)
            .bind(name)
            .bind(description)
            .fetch_one(&mut self.conn)
            .await;
        made.map_err(|error| refuse_violation(error, &VIOLATIONS))
    }

    /// An organisation's projects, by name.
    pub async fn projects(&mut self, org_id: Uuid) -> Result<Vec<ProjectRow>, StepError> {
        let sql = format!("SELECT {COLUMNS} FROM undolog_projects WHERE org_id = $1 ORDER BY name");
        Ok(sqlx::query_as(&sql).bind(org_id).fetch_all(&mut self.conn).await?)
    }

    /// Changes the policies of a project, which is named by its name or its uuid.
    pub async fn set_project(
        &mut self,
        org_id: Uuid,
        named: &str,
        change: &ProjectChange,
    ) -> Result<ProjectRow, StepError> {
        let rows = self.projects(org_id).await?;
        let is_meant = |row: &&ProjectRow| {
            row.name == named || Uuid::parse_str(named).is_ok_and(|id| id == row.project_id)
        };
        let project_id = rows.iter().find(is_meant).map(|row| row.project_id).ok_or_else(|| {
            StepError::refuse(Reason::ProjectNotFound, format!("there is no project {named}"))
        })?;
        let sql = format!("{} RETURNING {COLUMNS}", include_str!("../../sql/project_set.sql"));
        let changed = sqlx::query_as(&sql)
            .bind(org_id)
            .bind(project_id)
            .bind(change.approval_timeout_seconds.is_some())
            .bind(change.approval_timeout_seconds.flatten())
            .bind(change.auto_approve_on_timeout.is_some())
            .bind(change.auto_approve_on_timeout.flatten())
            .bind(change.approval_quorum.is_some())
            .bind(change.approval_quorum.flatten())
            .fetch_one(&mut self.conn)
            .await;
        changed.map_err(|error| refuse_violation(error, &VIOLATIONS))
    }
}
