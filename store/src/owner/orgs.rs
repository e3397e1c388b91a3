//! Organisations: their time-outs and policies.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use undolog_core::reason::Reason;
use uuid::Uuid;

use super::{Owner, refuse_violation};
use crate::{error::StepError, notify};

/// An organisation with its policies.
#[derive(Debug, Clone, PartialEq, FromRow)]
#[expect(missing_docs, reason = "the columns are described in the schema")]
pub struct OrgRow {
    pub org_id: Uuid,
    pub slug: String,
    pub name: String,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    pub default_approval_timeout_seconds: i32,
    pub auto_approve_on_timeout: bool,
    pub never_auto_approve_tags: Vec<String>,
    pub on_tool_failure: String,
    pub on_rejection: String,
    pub on_dead_letter: String,
    pub on_step_conflict: String,
    pub on_unregistered_tool: String,
    pub on_unknown: Option<String>,
    pub on_idle: String,
    pub idle_session_seconds: i32,
    pub resume_window_seconds: i32,
    pub undo_window_seconds: i32,
    pub settle_ms: Option<i64>,
    pub webhook_url: Option<String>,
    pub webhook_secret: Option<String>,
    pub requester_may_approve: bool,
    pub agents_roll_back: String,
}

/// What to change; `None` leaves a value as it is. Where a value can be absent, the inner `None`
/// takes it away.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(missing_docs, reason = "the columns are described in the schema")]
pub struct OrgChange {
    pub name: Option<String>,
    pub default_approval_timeout_seconds: Option<i32>,
    pub auto_approve_on_timeout: Option<bool>,
    pub never_auto_approve_tags: Option<Vec<String>>,
    pub on_tool_failure: Option<String>,
    pub on_rejection: Option<String>,
    pub on_dead_letter: Option<String>,
    pub on_step_conflict: Option<String>,
    pub on_unregistered_tool: Option<String>,
    pub on_unknown: Option<Option<String>>,
    pub on_idle: Option<String>,
    pub idle_session_seconds: Option<i32>,
    pub resume_window_seconds: Option<i32>,
    pub undo_window_seconds: Option<i32>,
    pub settle_ms: Option<Option<i64>>,
    /// Where notifications go. Taking it away takes the secret's name away too.
    pub webhook_url: Option<Option<String>>,
    /// The name of the secret that signs notifications.
    pub webhook_secret: Option<String>,
    pub requester_may_approve: Option<bool>,
    pub agents_roll_back: Option<String>,
}

const COLUMNS: &str = "org_id, slug, name, created_at, updated_at, \
    default_approval_timeout_seconds, auto_approve_on_timeout, never_auto_approve_tags, \
    on_tool_failure, on_rejection, on_dead_letter, on_step_conflict, on_unregistered_tool, \
    on_unknown, on_idle, idle_session_seconds, resume_window_seconds, undo_window_seconds, \
    settle_ms, webhook_url, webhook_secret, requester_may_approve, agents_roll_back";

const VIOLATIONS: [(&str, Reason, &str); 3] = [
    (
        "undolog_orgs_slug_key",
        Reason::RegistrationConflict,
        "an organisation with this slug exists already",
    ),
    (
        "undolog_orgs_slug_format",
        Reason::InvalidArgument,
        "a slug has 2 to 64 characters: lower-case letters, digits and dashes",
    ),
    (
        "undolog_orgs_webhook",
        Reason::InvalidArgument,
        "a webhook needs the name of the secret that signs it",
    ),
];

impl Owner {
    /// Makes an organisation with the documented defaults.
    pub async fn create_org(&mut self, slug: &str, name: &str) -> Result<OrgRow, StepError> {
        let sql =
            format!("INSERT INTO undolog_orgs (slug, name) VALUES ($1, $2) RETURNING {COLUMNS}");
        let made = sqlx::query_as(&sql).bind(slug).bind(name).fetch_one(&mut self.conn).await;
        made.map_err(|error| refuse_violation(error, &VIOLATIONS))
    }

    /// The organisation with this slug, made now if there is none.
    pub async fn ensure_org(&mut self, slug: &str) -> Result<OrgRow, StepError> {
        sqlx::query("INSERT INTO undolog_orgs (slug, name) VALUES ($1, $1) ON CONFLICT DO NOTHING")
            .bind(slug)
            .execute(&mut self.conn)
            .await
            .map_err(|error| refuse_violation(error, &VIOLATIONS))?;
        self.org(slug).await
    }

    /// Every organisation, by slug.
    pub async fn orgs(&mut self) -> Result<Vec<OrgRow>, StepError> {
        let sql = format!("SELECT {COLUMNS} FROM undolog_orgs ORDER BY slug");
        Ok(sqlx::query_as(&sql).fetch_all(&mut self.conn).await?)
    }

    /// The organisation with this slug or uuid.
    pub async fn org(&mut self, slug_or_id: &str) -> Result<OrgRow, StepError> {
        let id = Uuid::parse_str(slug_or_id).ok();
        let sql = format!("SELECT {COLUMNS} FROM undolog_orgs WHERE slug = $1 OR org_id = $2");
        let found: Option<OrgRow> =
            sqlx::query_as(&sql).bind(slug_or_id).bind(id).fetch_optional(&mut self.conn).await?;
        found.ok_or_else(|| {
            StepError::refuse(Reason::OrgNotFound, format!("there is no organisation {slug_or_id}"))
        })
    }

    /// Changes time-outs and policies.
    pub async fn set_org(&mut self, org_id: Uuid, change: &OrgChange) -> Result<OrgRow, StepError> {
        if change.default_approval_timeout_seconds.is_some_and(|seconds| seconds < 1) {
            let why = "an approval needs at least a second: nobody could decide in time";
            return Err(StepError::refuse(Reason::InvalidArgument, why));
        }
        notify::check_target(change.webhook_url.as_ref(), change.webhook_secret.as_deref())?;
        let sql = format!("{} RETURNING {COLUMNS}", include_str!("../../sql/org_set.sql"));
        let changed = sqlx::query_as(&sql)
            .bind(org_id)
            .bind(&change.name)
            .bind(change.default_approval_timeout_seconds)
            .bind(change.auto_approve_on_timeout)
            .bind(&change.never_auto_approve_tags)
            .bind(&change.on_tool_failure)
            .bind(&change.on_rejection)
            .bind(&change.on_dead_letter)
            .bind(&change.on_step_conflict)
            .bind(&change.on_unregistered_tool)
            .bind(change.on_unknown.is_some())
            .bind(change.on_unknown.clone().flatten())
            .bind(&change.on_idle)
            .bind(change.idle_session_seconds)
            .bind(change.resume_window_seconds)
            .bind(change.undo_window_seconds)
            .bind(change.settle_ms.is_some())
            .bind(change.settle_ms.flatten())
            .bind(change.webhook_url.is_some())
            .bind(change.webhook_url.clone().flatten())
            .bind(&change.webhook_secret)
            .bind(change.requester_may_approve)
            .bind(&change.agents_roll_back)
            .fetch_one(&mut self.conn)
            .await;
        changed.map_err(|error| refuse_violation(error, &VIOLATIONS))
    }
}
