//! Dead letters: what only a human can settle. At most one is open per effect and undo entry.

use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::FromRow;
use undolog_core::{
    json::show_text,
    state::{DeadLetterEvent, DeadLetterReason, DeadLetterState, Subject},
};
use uuid::Uuid;

use crate::{
    error::StepError,
    session::{LockedSession, one_row},
    tenant::Tenant,
};

/// An open dead letter.
#[derive(Debug, Clone, FromRow)]
#[expect(missing_docs, reason = "the columns are described in the schema")]
pub struct DeadLetterRow {
    pub dead_letter_id: Uuid,
    pub effect_id: Uuid,
    pub undo_id: Option<Uuid>,
    pub reason: String,
    pub created_at: DateTime<Utc>,
}

/// What a dead letter is about.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// The effect.
    pub effect_id: Uuid,
    /// The undo entry, unless it is about the effect itself.
    pub undo_id: Option<Uuid>,
    /// The rollback that met it.
    pub rollback_id: Option<Uuid>,
}

/// Opens a dead letter, unless one about the same is open already. `detail` is for people and can
/// come from outside; it must hold no secret.
pub async fn open(
    tx: &mut Tenant,
    session: &mut LockedSession,
    about: About,
    reason: DeadLetterReason,
    detail: &str,
    actor: &str,
) -> Result<Option<Uuid>, StepError> {
    let org_id = tx.org_id();
    let (shown, raw) = show_text(detail);
    let opened: Option<Uuid> = sqlx::query_scalar(include_str!("../sql/dead_letter_open.sql"))
        .bind(org_id)
        .bind(session.id())
        .bind(about.effect_id)
        .bind(about.undo_id)
        .bind(about.rollback_id)
        .bind(reason.as_str())
        .bind(shown)
        .bind(raw)
        .bind(session.t())
        .fetch_optional(tx.conn())
        .await?;
    if let Some(id) = opened {
        metrics::counter!("undolog_dead_letters_total", "reason" => reason.as_str()).increment(1);
        session.record(
            Subject::DeadLetter,
            id,
            DeadLetterEvent::Opened.as_str(),
            None,
            DeadLetterState::Open.as_str(),
            None,
            actor,
            json!({
                "reason": reason.as_str(),
                "effect_id": about.effect_id,
                "undo_id": about.undo_id,
            }),
        );
    }
    Ok(opened)
}

/// The open dead letters about an effect (with `undo_id` given: about that entry only).
pub async fn open_about(
    tx: &mut Tenant,
    effect_id: Uuid,
    undo_id: Option<Uuid>,
) -> Result<Vec<DeadLetterRow>, StepError> {
    let org_id = tx.org_id();
    Ok(sqlx::query_as(
        "SELECT dead_letter_id, effect_id, undo_id, reason, created_at FROM undolog_dead_letters \
         WHERE effect_id = $1 AND ($2::uuid IS NULL OR undo_id = $2) AND org_id = $3 \
         AND closed_at IS NULL",
    )
    .bind(effect_id)
    .bind(undo_id)
    .bind(org_id)
    .fetch_all(tx.conn())
    .await?)
}

/// Records that something came in which an open dead letter has to show.
pub fn note(session: &mut LockedSession, dead_letter_id: Uuid, actor: &str, what: &str) {
    session.record(
        Subject::DeadLetter,
        dead_letter_id,
        DeadLetterEvent::Noted.as_str(),
        Some(DeadLetterState::Open.as_str()),
        DeadLetterState::Open.as_str(),
        None,
        actor,
        json!({"what": what}),
    );
}

/// Closes a dead letter.
pub async fn close(
    tx: &mut Tenant,
    session: &mut LockedSession,
    dead_letter_id: Uuid,
    actor: &str,
    resolution: &str,
    note: Option<&str>,
) -> Result<(), StepError> {
    let org_id = tx.org_id();
    let done = sqlx::query(
        "UPDATE undolog_dead_letters SET closed_at = $3, closed_by = $4, resolution = $5, \
         note = $6 WHERE dead_letter_id = $1 AND org_id = $2 AND closed_at IS NULL",
    )
    .bind(dead_letter_id)
    .bind(org_id)
    .bind(session.t())
    .bind(actor)
    .bind(resolution)
    .bind(note)
    .execute(tx.conn())
    .await?;
    one_row(done.rows_affected(), "dead letter")?;
    session.record(
        Subject::DeadLetter,
        dead_letter_id,
        DeadLetterEvent::Closed.as_str(),
        Some(DeadLetterState::Open.as_str()),
        DeadLetterState::Closed.as_str(),
        None,
        actor,
        json!({"resolution": resolution}),
    );
    Ok(())
}
