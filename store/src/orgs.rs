//! Organisations: the tenants and their policies.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use undolog_core::reason::Reason;
use uuid::Uuid;

use crate::{error::StepError, owner::OwnerStore, pool::Store};

/// An organisation as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
#[expect(missing_docs, reason = "the columns are described in the schema")]
pub struct OrgRow {
    pub org_id: Uuid,
    pub slug: String,
    pub name: String,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    pub default_approval_timeout_seconds: i32,
    pub auto_approve_on_timeout: bool,
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
    pub never_auto_approve_tags: Vec<String>,
    pub registry_epoch: i64,
}

/// What to set of an organisation; `None` leaves a value as it is. In `on_unknown` the word
/// `default`, and in `settle_ms` a negative number, take the value back to its default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are the columns of the same name")]
pub struct OrgSettings {
    pub name: Option<String>,
    pub default_approval_timeout_seconds: Option<i32>,
    pub auto_approve_on_timeout: Option<bool>,
    pub on_tool_failure: Option<String>,
    pub on_rejection: Option<String>,
    pub on_dead_letter: Option<String>,
    pub on_step_conflict: Option<String>,
    pub on_unregistered_tool: Option<String>,
    pub on_unknown: Option<String>,
    pub on_idle: Option<String>,
    pub idle_session_seconds: Option<i32>,
    pub resume_window_seconds: Option<i32>,
    pub undo_window_seconds: Option<i32>,
    pub settle_ms: Option<i64>,
    pub never_auto_approve_tags: Option<Vec<String>>,
}

impl OrgSettings {
    fn check(&self) -> Result<(), StepError> {
        one_of("on_tool_failure", &self.on_tool_failure, &["rollback", "continue"])?;
        one_of("on_rejection", &self.on_rejection, &["halt", "rollback"])?;
        one_of("on_dead_letter", &self.on_dead_letter, &["halt", "continue"])?;
        one_of("on_step_conflict", &self.on_step_conflict, &["refuse", "allow"])?;
        one_of("on_unregistered_tool", &self.on_unregistered_tool, &["refuse", "irreversible"])?;
        one_of("on_unknown", &self.on_unknown, &["rollback", "hold", "default"])?;
        one_of("on_idle", &self.on_idle, &["complete", "rollback", "leave"])?;
        let year = 31_622_400;
        let timeout = self.default_approval_timeout_seconds;
        between("default_approval_timeout_seconds", timeout, 1, year)?;
        between("idle_session_seconds", self.idle_session_seconds, 60, year)?;
        between("resume_window_seconds", self.resume_window_seconds, 0, year)?;
        between("undo_window_seconds", self.undo_window_seconds, 60, 10 * year)?;
        if self.settle_ms.is_some_and(|ms| ms > 86_400_000) {
            return Err(invalid("settle_ms is longer than a day"));
        }
        if self.name.as_deref().is_some_and(|name| !is_name(name)) {
            return Err(invalid("the organisation's name is blank, too long, or holds NUL"));
        }
        let tags = self.never_auto_approve_tags.as_deref().unwrap_or_default();
        if tags.len() > 256 || tags.iter().any(|tag| !is_name(tag)) {
            return Err(invalid("a tag of never_auto_approve_tags is blank, too long, or has NUL"));
        }
        Ok(())
    }
}

fn invalid(message: impl Into<String>) -> StepError {
    StepError::refuse(Reason::InvalidArgument, message)
}

fn one_of(what: &str, given: &Option<String>, allowed: &[&str]) -> Result<(), StepError> {
    match given.as_deref() {
        Some(value) if !allowed.contains(&value) => {
            Err(invalid(format!("{what} is none of {}", allowed.join(", "))))
        }
        _ => Ok(()),
    }
}

fn between(what: &str, given: Option<i32>, least: i32, most: i32) -> Result<(), StepError> {
    match given {
        Some(value) if !(least..=most).contains(&value) => {
            Err(invalid(format!("{what} is not between {least} and {most}")))
        }
        _ => Ok(()),
    }
}

/// A name for people: not blank, bounded, storable.
pub(crate) fn is_name(name: &str) -> bool {
    !name.trim().is_empty() && name.len() <= 256 && !name.contains('\0')
}

/// Whether a text has the documented form of a slug: `^[a-z0-9-]{2,64}$`.
#[must_use]
pub fn is_slug(text: &str) -> bool {
    (2..=64).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// Creates an organisation.
pub async fn create(
    owner: &OwnerStore,
    slug: &str,
    settings: &OrgSettings,
) -> Result<OrgRow, StepError> {
    if !is_slug(slug) {
        return Err(invalid("a slug has 2 to 64 characters of a-z, 0-9 and -"));
    }
    settings.check()?;
    let name = settings.name.as_deref().unwrap_or(slug);
    let made: Option<Uuid> = sqlx::query_scalar(
        "INSERT INTO undolog_orgs (slug, name) VALUES ($1, $2) \
         ON CONFLICT (slug) DO NOTHING RETURNING org_id",
    )
    .bind(slug)
    .bind(name)
    .fetch_optional(owner.pool())
    .await?;
    if made.is_none() {
        return Err(StepError::refuse(
            Reason::RegistrationConflict,
            format!("there is an organisation {slug} already"),
        ));
    }
    set(owner, slug, settings).await
}

/// Sets policies of an organisation that is named by uuid or slug.
pub async fn set(
    owner: &OwnerStore,
    named: &str,
    settings: &OrgSettings,
) -> Result<OrgRow, StepError> {
    settings.check()?;
    let org = show(owner, named).await?;
    let row: Option<OrgRow> = sqlx::query_as(include_str!("../sql/org_set.sql"))
        .bind(org.org_id)
        .bind(&settings.name)
        .bind(settings.default_approval_timeout_seconds)
        .bind(settings.auto_approve_on_timeout)
        .bind(&settings.on_tool_failure)
        .bind(&settings.on_rejection)
        .bind(&settings.on_dead_letter)
        .bind(&settings.on_step_conflict)
        .bind(&settings.on_unregistered_tool)
        .bind(&settings.on_unknown)
        .bind(&settings.on_idle)
        .bind(settings.idle_session_seconds)
        .bind(settings.resume_window_seconds)
        .bind(settings.undo_window_seconds)
        .bind(settings.settle_ms)
        .bind(&settings.never_auto_approve_tags)
        .fetch_optional(owner.pool())
        .await?;
    row.ok_or_else(|| not_found(named))
}

/// Every organisation, by slug.
pub async fn list(owner: &OwnerStore) -> Result<Vec<OrgRow>, StepError> {
    Ok(sqlx::query_as("SELECT * FROM undolog_orgs ORDER BY slug").fetch_all(owner.pool()).await?)
}

/// One organisation by uuid or slug.
pub async fn show(owner: &OwnerStore, named: &str) -> Result<OrgRow, StepError> {
    let row = match Uuid::parse_str(named) {
        Ok(org_id) => {
            let by_id = "SELECT * FROM undolog_orgs WHERE org_id = $1";
            sqlx::query_as(by_id).bind(org_id).fetch_optional(owner.pool()).await?
        }
        Err(_) if is_slug(named) => {
            let by_slug = "SELECT * FROM undolog_orgs WHERE slug = $1";
            sqlx::query_as(by_slug).bind(named).fetch_optional(owner.pool()).await?
        }
        Err(_) => None,
    };
    row.ok_or_else(|| not_found(named))
}

/// The organisation of a slug in development, made when it is not there yet.
pub async fn ensure_dev_org(owner: &OwnerStore, slug: &str) -> Result<Uuid, StepError> {
    if !is_slug(slug) {
        return Err(invalid("a slug has 2 to 64 characters of a-z, 0-9 and -"));
    }
    sqlx::query(
        "INSERT INTO undolog_orgs (slug, name) VALUES ($1, $1) ON CONFLICT (slug) DO NOTHING",
    )
    .bind(slug)
    .execute(owner.pool())
    .await?;
    Ok(show(owner, slug).await?.org_id)
}

/// The id of a slug, with the engine's rights.
pub async fn id_by_slug(store: &Store, slug: &str) -> Result<Option<Uuid>, StepError> {
    if !is_slug(slug) {
        return Ok(None);
    }
    Ok(sqlx::query_scalar("SELECT undolog_org_by_slug($1)")
        .bind(slug)
        .fetch_one(store.pool())
        .await?)
}

fn not_found(named: &str) -> StepError {
    StepError::refuse(Reason::OrgNotFound, format!("there is no organisation {named}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_have_the_documented_form() {
        for good in ["ab", "acme", "a-1", &"x".repeat(64)] {
            assert!(is_slug(good), "{good}");
        }
        for bad in ["", "a", "Acme", "a_b", "a b", "ä-ä", &"x".repeat(65)] {
            assert!(!is_slug(bad), "{bad}");
        }
    }

    #[test]
    fn settings_are_checked_before_they_are_written() {
        let bad = [
            OrgSettings { on_idle: Some("halt".to_owned()), ..OrgSettings::default() },
            OrgSettings { idle_session_seconds: Some(1), ..OrgSettings::default() },
            OrgSettings { settle_ms: Some(i64::MAX), ..OrgSettings::default() },
            OrgSettings { name: Some(" ".to_owned()), ..OrgSettings::default() },
        ];
        for settings in bad {
            settings.check().unwrap_err();
        }
        OrgSettings::default().check().unwrap();
    }
}
