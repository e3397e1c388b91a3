//! The pause of every organisation at once: for the moment when nobody knows yet what is wrong.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use undolog_core::limits::{RESUME_STEP_MS, RESUME_WINDOW_MS};

use super::Owner;
use crate::error::StepError;

/// The pause of every organisation.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct PauseAll {
    /// Since when.
    pub paused_at: DateTime<Utc>,
    /// By whom.
    pub paused_by: String,
    /// For people.
    pub reason: String,
}

impl Owner {
    /// Pauses the compensations of every organisation. A pause that holds already keeps its time.
    pub async fn pause_all(
        &mut self,
        paused_by: &str,
        reason: &str,
    ) -> Result<PauseAll, StepError> {
        Ok(sqlx::query_as(
            "INSERT INTO undolog_pause_all (paused_at, paused_by, reason) \
             VALUES (clock_timestamp(), $1, $2) ON CONFLICT (singleton) \
             DO UPDATE SET paused_by = EXCLUDED.paused_by, reason = EXCLUDED.reason \
             RETURNING paused_at, paused_by, reason",
        )
        .bind(paused_by)
        .bind(reason)
        .fetch_one(&mut self.conn)
        .await?)
    }

    /// Ends that pause, and has what waited for it looked at; answers the pause that ended. The
    /// pauses of single organisations stay.
    pub async fn resume_all(&mut self) -> Result<Option<PauseAll>, StepError> {
        Ok(sqlx::query_as(include_str!("../../sql/operate_resume_all.sql"))
            .bind(RESUME_STEP_MS)
            .bind(RESUME_WINDOW_MS)
            .fetch_optional(&mut self.conn)
            .await?)
    }

    /// The pause of every organisation, if there is one.
    pub async fn paused_all(&mut self) -> Result<Option<PauseAll>, StepError> {
        Ok(sqlx::query_as("SELECT paused_at, paused_by, reason FROM undolog_pause_all")
            .fetch_optional(&mut self.conn)
            .await?)
    }
}
