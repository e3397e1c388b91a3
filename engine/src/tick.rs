//! Ticks: how the journal knows that engines run, and how this engine knows that it is ready.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use undolog_core::limits::{TICK_LATE_MS, TICK_MS};
use undolog_store::{Store, service};

/// The name that engines tick under.
const SERVICE: &str = "engine";

/// When this engine's last tick got through.
#[derive(Debug)]
pub(crate) struct Ticks(Mutex<Instant>);

impl Ticks {
    /// Ticks the first time. An engine serves only after it.
    pub(crate) async fn first(store: &Store) -> Result<Self, undolog_store::StepError> {
        service::tick(store, SERVICE).await?;
        Ok(Self(Mutex::new(Instant::now())))
    }

    /// The journal was written to a short while ago.
    pub(crate) fn is_fresh(&self) -> bool {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.elapsed() <= Duration::from_millis(TICK_LATE_MS)
    }

    /// Ticks until the engine stops. A tick that fails is tried again at the next turn.
    pub(crate) async fn go_on(&self, store: &Store, stop: &CancellationToken) {
        let mut every = tokio::time::interval(Duration::from_millis(TICK_MS));
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = every.tick() => {}
            }
            match service::tick(store, SERVICE).await {
                Ok(_) => *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now(),
                Err(error) => {
                    metrics::counter!("undolog_tick_failures_total").increment(1);
                    tracing::warn!(error = %error, "a tick did not get through");
                }
            }
        }
    }
}
