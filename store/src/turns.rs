//! A fair queue before the pool.
//!
//! The pool gives up on a caller that waits too long for a connection. That is right when the
//! database does not answer and wrong when a thousand callers come at once and each is served in
//! its turn. So callers queue here, first come, first served, as long as anybody is served at all.
//! One that is dropped leaves the queue: nothing is begun for it, and only what is begun has a
//! task.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::StepError;

/// The queue: as many are served at once as there are connections.
#[derive(Debug, Clone)]
pub(crate) struct Turns {
    free: Arc<Semaphore>,
    served: Arc<AtomicU64>,
    patience: Duration,
}

/// One caller's place; the next caller's turn comes when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
    served: Arc<AtomicU64>,
}

impl Turns {
    /// `patience` is how long a caller waits while nobody is served.
    pub(crate) fn new(at_once: u32, patience: Duration) -> Self {
        let places = usize::try_from(at_once).unwrap_or(Semaphore::MAX_PERMITS);
        let free = Arc::new(Semaphore::new(places.clamp(1, Semaphore::MAX_PERMITS)));
        Self { free, served: Arc::default(), patience }
    }

    /// Waits for a place.
    ///
    /// # Errors
    /// Nobody was served for as long as a caller waits.
    pub(crate) async fn wait(&self) -> Result<Place, StepError> {
        let turn = Arc::clone(&self.free).acquire_owned();
        tokio::pin!(turn);
        loop {
            let before = self.served.load(Ordering::Relaxed);
            match tokio::time::timeout(self.patience, &mut turn).await {
                Ok(Ok(permit)) => {
                    return Ok(Place { _permit: permit, served: Arc::clone(&self.served) });
                }
                Ok(Err(_closed)) => return Err(StepError::Db(sqlx::Error::PoolClosed)),
                Err(_) if self.served.load(Ordering::Relaxed) != before => {}
                Err(_) => return Err(StepError::Db(sqlx::Error::PoolTimedOut)),
            }
        }
    }
}

impl Place {
    /// Leaves the place and says whether the database answered.
    pub(crate) fn end(self, was_answered: bool) {
        if was_answered {
            self.served.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn callers_queue_as_long_as_somebody_is_served() {
        let patience = Duration::from_millis(400);
        let turns = Turns::new(1, patience);
        let first = turns.wait().await.expect("a free place");
        let queued = tokio::spawn({
            let turns = turns.clone();
            async move { turns.wait().await.map(|turn| turn.end(true)) }
        });
        // Somebody else is served all the time: nobody gives up, however long it takes.
        let mut every = tokio::time::interval(Duration::from_millis(1));
        let began = tokio::time::Instant::now();
        while began.elapsed() < patience * 3 {
            every.tick().await;
            turns.served.fetch_add(1, Ordering::Relaxed);
        }
        assert!(!queued.is_finished());
        first.end(true);
        queued.await.expect("no panic").expect("its turn came");
    }

    #[tokio::test]
    async fn when_nobody_is_served_callers_hear_so() {
        let turns = Turns::new(1, Duration::from_millis(50));
        let stuck = turns.wait().await.expect("a free place");
        let queued = turns.wait().await;
        assert!(queued.is_err_and(|error| error.is_unavailable()));
        // Who gave up left the queue.
        stuck.end(false);
        turns.wait().await.expect("a free place").end(true);
    }
}
