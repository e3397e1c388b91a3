//! The plain timer that starts the schedules: it upserts the due slots' tickets. Every process has
//! one, and they compute the same tickets.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use undolog_store::{
    quiet::Quiet,
    readiness::{LOOK_EVERY, Readiness},
    service, sweeps,
};

use crate::{handler::Shared, walk::random_below};

/// How often the timer looks for due slots.
const TICK: Duration = Duration::from_secs(1);
/// A process whose timer stood still for so long is not alive.
const STILL: Duration = Duration::from_secs(120);

static SAID: Quiet = Quiet::new();

/// When the timer ticked last: what liveness asks, since it must not depend on the database.
#[derive(Debug, Clone)]
pub(crate) struct Pulse {
    started: Instant,
    last_ms: Arc<AtomicU64>,
}

impl Default for Pulse {
    fn default() -> Self {
        Self { started: Instant::now(), last_ms: Arc::default() }
    }
}

impl Pulse {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn beat(&self) {
        self.last_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    pub(crate) fn is_alive(&self) -> bool {
        let still_ms = u64::try_from(STILL.as_millis()).unwrap_or(u64::MAX);
        self.now_ms().saturating_sub(self.last_ms.load(Ordering::Relaxed)) < still_ms
    }
}

/// Ticks until the process stops, and finds out whether the process is ready.
pub(crate) async fn run(shared: Arc<Shared>, pulse: Pulse, readiness: Readiness) {
    // Processes that start together should not all tick together.
    let offset = Duration::from_millis(random_below(250));
    tokio::select! {
        () = tokio::time::sleep(offset) => {}
        () = shared.stop.cancelled() => return,
    }
    let store = &shared.queue_store;
    let mut look_at = Instant::now();
    loop {
        pulse.beat();
        let enqueued = store.note(sweeps::enqueue_due(store).await);
        let looked = match enqueued {
            Err(error) => {
                readiness.failed(&error);
                Err(error)
            }
            Ok(_) if Instant::now() >= look_at => {
                readiness.look(store, service::write_as_worker(store)).await
            }
            Ok(_) => Ok(()),
        };
        match looked {
            Ok(()) if Instant::now() >= look_at => look_at = Instant::now() + LOOK_EVERY,
            Ok(()) => {}
            Err(error) => {
                look_at = Instant::now();
                if let Some(kept_back) = SAID.may_say(&error.to_string()) {
                    tracing::warn!(%error, kept_back, "the timer does not get through");
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(TICK) => {}
            () = shared.stop.cancelled() => return,
        }
    }
}
