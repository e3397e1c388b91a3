//! Writes the snapshots of a session that are due, beside the handlers: a crowd of them is in no
//! sweep's way.

use std::sync::Arc;

use tokio::sync::Semaphore;
use undolog_store::replay::{WriteSnapshot, Written};
use uuid::Uuid;

use crate::handler::Shared;

/// Sessions whose snapshots are written at the same time.
const WRITERS: usize = 2;
/// Sessions that wait for a writer. A snapshot is a cache: what is not written now is taken along
/// by the next fifty commits.
const WAITING_MAX: usize = 1_000;

/// The writers of a process.
#[derive(Debug, Clone)]
pub(crate) struct Snapshots {
    writers: Arc<Semaphore>,
    places: Arc<Semaphore>,
}

impl Default for Snapshots {
    fn default() -> Self {
        let places = WRITERS + WAITING_MAX;
        Self {
            writers: Arc::new(Semaphore::new(WRITERS)),
            places: Arc::new(Semaphore::new(places)),
        }
    }
}

impl Snapshots {
    /// Has a session's snapshots written soon.
    pub(crate) fn ask(&self, shared: &Arc<Shared>, org_id: Uuid, session_id: Uuid) {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            metrics::counter!("undolog_snapshots_put_off_total").increment(1);
            return;
        };
        let (writers, shared) = (Arc::clone(&self.writers), Arc::clone(shared));
        let tasks = shared.tasks.clone();
        tasks.spawn(async move {
            let _place = place;
            let writer = tokio::select! {
                () = shared.stop.cancelled() => return,
                writer = writers.acquire_owned() => writer,
            };
            if writer.is_ok() {
                write(&shared, org_id, session_id).await;
            }
        });
    }
}

/// Writes snapshot after snapshot until too little is left for one. A run that breaks off loses
/// nothing: the next fifty commits ask again.
async fn write(shared: &Shared, org_id: Uuid, session_id: Uuid) {
    while !shared.stop.is_cancelled() {
        match shared.store.run(WriteSnapshot { org_id, session_id }).await {
            Ok(Written::Snapshot) => metrics::counter!("undolog_snapshots_total").increment(1),
            Ok(Written::NotDue) => return,
            Err(error) => {
                tracing::warn!(session.id = %session_id, %error, "a snapshot was not written");
                return;
            }
        }
    }
}
