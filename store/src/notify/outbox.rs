//! Which events of a step are told, and their rows.

use serde_json::Value;
use undolog_core::state::{ApprovalEvent, DeadLetterEvent, SessionEvent};
use uuid::Uuid;

use crate::{error::StepError, events::Event, session::LockedSession, tenant::Tenant};

/// The kind of notification that an event leads to.
fn kind(event: &Event) -> Option<&'static str> {
    const RESOLVED: [ApprovalEvent; 8] = [
        ApprovalEvent::Approved,
        ApprovalEvent::Modified,
        ApprovalEvent::Rejected,
        ApprovalEvent::TimedOut,
        ApprovalEvent::AutoApproved,
        ApprovalEvent::Revoked,
        ApprovalEvent::Lapsed,
        ApprovalEvent::Voided,
    ];
    const HALTED: [SessionEvent; 3] =
        [SessionEvent::RejectionHalted, SessionEvent::WalkHalted, SessionEvent::DeadLettered];
    if event.kind == ApprovalEvent::Requested.as_str() {
        Some("approval_requested")
    } else if RESOLVED.iter().any(|known| known.as_str() == event.kind) {
        Some("approval_resolved")
    } else if HALTED.iter().any(|known| known.as_str() == event.kind) {
        Some("session_halted")
    } else if event.kind == DeadLetterEvent::Opened.as_str() {
        Some("dead_letter_created")
    } else {
        None
    }
}

/// A text of an event's detail. Details never hold arguments, results or secrets.
fn text<'a>(event: &'a Event, key: &str) -> Option<&'a str> {
    event.detail.get(key).and_then(Value::as_str)
}

/// Writes the notifications about a step's events, and has them sent after the commit.
pub(crate) async fn write(
    tx: &mut Tenant,
    session: &LockedSession,
    events: &[Event],
) -> Result<(), StepError> {
    let told: Vec<(&'static str, &Event)> =
        events.iter().filter_map(|event| kind(event).map(|kind| (kind, event))).collect();
    if told.is_empty() || !crate::guard!("notify.outbox") {
        return Ok(());
    }
    let effects = told.iter().map(|(_, event)| text(event, "effect_id")?.parse().ok());
    let reasons = told.iter().map(|(_, event)| text(event, "reason"));
    sqlx::query(include_str!("../../sql/notify_write.sql"))
        .bind(session.row.org_id)
        .bind(session.id())
        .bind(session.row.started_at)
        .bind(session.t())
        .bind(told.iter().map(|(kind, _)| *kind).collect::<Vec<_>>())
        .bind(told.iter().map(|(_, event)| event.kind).collect::<Vec<_>>())
        .bind(told.iter().map(|(_, event)| event.subject_id).collect::<Vec<_>>())
        .bind(told.iter().map(|(_, event)| event.from).collect::<Vec<_>>())
        .bind(told.iter().map(|(_, event)| event.to).collect::<Vec<_>>())
        .bind(told.iter().map(|(_, event)| event.actor.as_str()).collect::<Vec<_>>())
        .bind(effects.collect::<Vec<Option<Uuid>>>())
        .bind(reasons.collect::<Vec<_>>())
        .bind(session.executed_until())
        .execute(tx.conn())
        .await?;
    // The ticket follows after the commit: its one row would make the organisation's steps wait for
    // each other.
    if !crate::guard!("notify.after_commit") {
        return super::enqueue(tx, 50).await;
    }
    tx.tell_afterwards();
    Ok(())
}
