//! The append-only log: every transition of a step, written with the step.

use chrono::{DateTime, NaiveDate, Utc};
use serde_json::Value;
use undolog_core::state::Subject;
use uuid::Uuid;

use crate::{error::StepError, tenant::Tenant};

/// One event before its place in the sequence is known.
#[derive(Debug, Clone)]
pub struct Event {
    /// What it is about.
    pub subject: Subject,
    /// The subject's id.
    pub subject_id: Uuid,
    /// What happened: a name of the core's event enums.
    pub kind: &'static str,
    /// The state before; `None` for something new.
    pub from: Option<&'static str>,
    /// The state after.
    pub to: &'static str,
    /// The effect's attempt, where one is meant.
    pub attempt: Option<i32>,
    /// Who did it.
    pub actor: String,
    /// More, for people: never arguments, results or secrets.
    pub detail: Value,
}

/// Where a session's events go.
pub(crate) struct Place {
    pub(crate) session_month: NaiveDate,
    pub(crate) session_id: Uuid,
    /// The number of the last event before these.
    pub(crate) last_seq: i64,
    pub(crate) at: DateTime<Utc>,
}

/// Appends events in one statement.
pub(crate) async fn append(
    tx: &mut Tenant,
    place: &Place,
    events: &[Event],
) -> Result<(), StepError> {
    if events.is_empty() {
        return Ok(());
    }
    let org_id = tx.org_id();
    sqlx::query(include_str!("../sql/events_append.sql"))
        .bind(place.session_month)
        .bind(org_id)
        .bind(place.session_id)
        .bind(place.last_seq)
        .bind(place.at)
        .bind(events.iter().map(|e| e.kind).collect::<Vec<_>>())
        .bind(events.iter().map(|e| e.subject.as_str()).collect::<Vec<_>>())
        .bind(events.iter().map(|e| e.subject_id).collect::<Vec<_>>())
        .bind(events.iter().map(|e| e.from).collect::<Vec<_>>())
        .bind(events.iter().map(|e| e.to).collect::<Vec<_>>())
        .bind(events.iter().map(|e| e.attempt).collect::<Vec<_>>())
        .bind(events.iter().map(|e| e.actor.as_str()).collect::<Vec<_>>())
        .bind(events.iter().map(|e| e.detail.clone()).collect::<Vec<_>>())
        .execute(tx.conn())
        .await?;
    Ok(())
}
