//! The rows of compensation calls.

use sqlx::FromRow;
use undolog_core::json::show_text;
use uuid::Uuid;

use super::{Claim, Report, prepare::Ready};
use crate::{
    error::StepError, gate, gate::Route, session::LockedSession, tenant::Tenant, undo::UndoRow,
};

/// A new attempt.
#[derive(Debug, FromRow)]
pub(super) struct Attempt {
    pub(super) undo_attempt_id: Uuid,
    pub(super) number: i32,
}

/// Writes an attempt before its call.
pub(super) async fn insert(
    tx: &mut Tenant,
    session: &LockedSession,
    claim: &Claim,
    entry: &UndoRow,
    ready: &Ready,
) -> Result<Attempt, StepError> {
    // A URL can quote arguments, which can hold anything that a URL can; NUL is percent-encoded.
    let url = ready.call.shown_url();
    Ok(sqlx::query_as(include_str!("../../sql/walk_attempt_insert.sql"))
        .bind(claim.org_id)
        .bind(session.id())
        .bind(entry.undo_id)
        .bind(claim.rollback_id)
        .bind(entry.round)
        .bind(claim.fence)
        .bind(&claim.worker)
        .bind(ready.fn_hash.as_slice())
        .bind(ready.call.method.as_str())
        .bind(url)
        .bind(ready.result_known)
        .bind(session.now())
        .bind(&entry.compensation_fn)
        .bind(&ready.host)
        .bind(ready.digest.as_slice())
        .fetch_one(tx.conn())
        .await?)
}

/// An attempt whose outcome has just been written.
#[derive(Debug, FromRow)]
pub(super) struct Completed {
    pub(super) undo_id: Uuid,
    pub(super) round: i32,
    /// The result was known when the call was made.
    pub(super) result_known: bool,
    /// What stood there before: nothing, or that it had been given up.
    pub(super) before: Option<String>,
    /// What was called.
    compensation_fn: Option<String>,
    host: Option<String>,
    /// The call was the one that a breaker had let through.
    is_probe: bool,
}

/// Completes an attempt by its id, and lets the breaker of its route know. `None`: its outcome was
/// known already.
pub(super) async fn complete(
    tx: &mut Tenant,
    session: &LockedSession,
    report: &Report,
) -> Result<Option<Completed>, StepError> {
    let (error, error_raw) = report.error.as_deref().map(show_text).unzip();
    let org_id = tx.org_id();
    let completed: Option<Completed> =
        sqlx::query_as(include_str!("../../sql/walk_attempt_complete.sql"))
            .bind(report.undo_attempt_id)
            .bind(org_id)
            .bind(session.now())
            .bind(report.outcome.as_str())
            .bind(report.status.map(i32::from))
            .bind(error)
            .bind(error_raw.flatten())
            .bind(&report.response)
            .bind(report.response_truncated)
            .bind(report.retry_after_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX)))
            .bind(report.may_have_run)
            .fetch_optional(tx.conn())
            .await?;
    if let Some(Completed {
        compensation_fn: Some(compensation_fn),
        host: Some(host),
        is_probe,
        ..
    }) = &completed
    {
        let route = Route { compensation_fn, host };
        gate::observe(tx, route, *is_probe, report.outcome, session.now()).await?;
    }
    Ok(completed)
}

/// Marks an attempt whose worker is gone.
pub(super) async fn interrupt(
    tx: &mut Tenant,
    session: &LockedSession,
    undo_attempt_id: Uuid,
) -> Result<(), StepError> {
    let org_id = tx.org_id();
    sqlx::query(
        "UPDATE undolog_undo_attempts SET outcome = 'interrupted', finished_at = $3 \
         WHERE undo_attempt_id = $1 AND org_id = $2 AND outcome IS NULL",
    )
    .bind(undo_attempt_id)
    .bind(org_id)
    .bind(session.now())
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Whether a call of the entry has succeeded.
pub(super) async fn has_success(tx: &mut Tenant, undo_id: Uuid) -> Result<bool, StepError> {
    let org_id = tx.org_id();
    Ok(sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM undolog_undo_attempts \
         WHERE undo_id = $1 AND org_id = $2 AND outcome = 'succeeded')",
    )
    .bind(undo_id)
    .bind(org_id)
    .fetch_one(tx.conn())
    .await?)
}
