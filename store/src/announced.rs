//! Decisions about approvals and tickets as they are announced to every process.
//!
//! An announcement is a hint and nothing more: one can be lost with its connection, so whoever
//! listens also looks by itself from time to time.

use sqlx::postgres::{PgListener, PgPoolOptions};
use uuid::Uuid;

use crate::{error::StepError, pool::Store};

/// The channel of decisions; the payload is the effect's id.
const CHANNEL: &str = "undolog_approvals";
/// The channel of tickets; the payload is the queue's name.
pub const TICKETS: &str = "apalis::job";

/// A connection of its own that listens, beside the pool.
#[derive(Debug)]
pub struct Announced {
    listener: PgListener,
}

impl Announced {
    /// Connects and listens to decisions.
    ///
    /// # Errors
    /// The database could not be reached.
    pub async fn listen(store: &Store) -> Result<Self, StepError> {
        Self::on(store, CHANNEL).await
    }

    /// Connects and listens to a channel.
    ///
    /// # Errors
    /// The database could not be reached.
    pub async fn on(store: &Store, channel: &str) -> Result<Self, StepError> {
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
        listener.listen(channel).await?;
        Ok(Self { listener })
    }

    /// The effect of the next decision.
    ///
    /// # Errors
    /// The connection is gone; what was announced meanwhile is not told again.
    pub async fn next(&mut self) -> Result<Uuid, StepError> {
        loop {
            // Anybody who may connect may notify; what is no id is none of ours.
            if let Ok(effect_id) = Uuid::parse_str(&self.payload().await?) {
                return Ok(effect_id);
            }
        }
    }

    /// What is announced next.
    ///
    /// # Errors
    /// The connection is gone; what was announced meanwhile is not told again.
    pub async fn payload(&mut self) -> Result<String, StepError> {
        match self.listener.try_recv().await? {
            Some(told) => Ok(told.payload().to_owned()),
            None => Err(StepError::Interrupted),
        }
    }
}
