//! Decisions about approvals as they are announced to every process.
//!
//! An announcement is a hint and nothing more: one can be lost with its connection, so whoever
//! listens also looks by itself from time to time.

use sqlx::postgres::{PgListener, PgPoolOptions};
use uuid::Uuid;

use crate::{error::StepError, pool::Store};

/// The channel of decisions; the payload is the effect's id.
const CHANNEL: &str = "undolog_approvals";

/// A connection of its own that listens, beside the pool.
#[derive(Debug)]
pub struct Announced {
    listener: PgListener,
}

impl Announced {
    /// Connects and listens.
    ///
    /// # Errors
    /// The database could not be reached.
    pub async fn listen(store: &Store) -> Result<Self, StepError> {
        let options = (*store.pool().connect_options()).clone();
        // The library wants a pool to take its connection from. This one has no other user, so
        // that listening never takes a connection away from those who work.
        let own = PgPoolOptions::new()
            .max_connections(1)
            .idle_timeout(None)
            .max_lifetime(None)
            .connect_with(options)
            .await?;
        let mut listener = PgListener::connect_with(&own).await?;
        listener.eager_reconnect(false);
        listener.listen(CHANNEL).await?;
        Ok(Self { listener })
    }

    /// The effect of the next decision.
    ///
    /// # Errors
    /// The connection is gone; what was announced meanwhile is not told again.
    pub async fn next(&mut self) -> Result<Uuid, StepError> {
        loop {
            let Some(told) = self.listener.try_recv().await? else {
                return Err(StepError::Interrupted);
            };
            // Anybody who may connect may notify; what is no id is none of ours.
            if let Ok(effect_id) = Uuid::parse_str(told.payload()) {
                return Ok(effect_id);
            }
        }
    }
}
