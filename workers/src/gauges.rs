//! Gauges that each worker reads from the database by itself, so that they are never those of the
//! process that swept last.

use std::{sync::Arc, time::Duration};

use undolog_store::{StepError, Store, backlog, quiet::Quiet, readiness::LOOK_EVERY};

use crate::handler::Shared;

/// How long one look may take.
const LOOK: Duration = Duration::from_secs(10);

static SAID: Quiet = Quiet::new();

/// Looks until the process stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        let looked = tokio::time::timeout(LOOK, look(&shared.queue_store)).await;
        if let Ok(Err(error)) = looked
            && let Some(kept_back) = SAID.may_say(&error.to_string())
        {
            tracing::warn!(%error, kept_back, "the gauges of the backlog are old");
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = shared.stop.cancelled() => return,
        }
    }
}

async fn look(store: &Store) -> Result<(), StepError> {
    let found = backlog::rollbacks(store).await?;
    for kind in backlog::KINDS {
        let count = found.iter().find(|(what, _)| what == kind).map_or(0, |(_, count)| *count);
        #[expect(clippy::cast_precision_loss, reason = "a gauge of at most 10,000 rows")]
        metrics::gauge!("undolog_rollbacks", "waits_for" => kind).set(count as f64);
    }
    let seconds = backlog::oldest_snapshot_seconds(store).await?;
    metrics::gauge!("undolog_oldest_snapshot_seconds").set(seconds);
    Ok(())
}
