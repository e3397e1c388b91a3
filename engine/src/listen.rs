//! One connection of this engine listens for decisions about approvals and wakes who waits.
//!
//! It only makes waiting short: the hub's own looks find what was announced while nobody listened.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;
use undolog_store::{StepError, Store, announced::Announced};

use crate::hub::Hub;

/// How long to wait before listening again after a connection was lost; doubled each time.
const AGAIN_AFTER: Duration = Duration::from_millis(250);
/// The longest such wait.
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(15);

/// Listens until the engine stops.
pub(crate) async fn listen(hub: Arc<Hub>, store: Store, stop: CancellationToken) {
    let mut pause = AGAIN_AFTER;
    loop {
        let heard = tokio::select! {
            () = stop.cancelled() => return,
            ended = hear(&hub, &store) => ended,
        };
        metrics::counter!("undolog_listen_failures_total").increment(1);
        tracing::info!(error = %heard.error, "decisions are not announced for a while");
        pause = if heard.listened { AGAIN_AFTER } else { (pause * 2).min(AGAIN_AFTER_MAX) };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// How a connection ended.
struct Ended {
    listened: bool,
    error: StepError,
}

async fn hear(hub: &Hub, store: &Store) -> Ended {
    let mut announced = match Announced::listen(store).await {
        Ok(announced) => announced,
        Err(error) => return Ended { listened: false, error },
    };
    loop {
        match announced.next().await {
            Ok(effect_id) => hub.wake(effect_id),
            Err(error) => return Ended { listened: true, error },
        }
    }
}
