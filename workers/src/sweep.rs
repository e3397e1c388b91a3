//! Runs a schedule's slot, if this worker wins it.

use std::{sync::Arc, time::Instant};

use undolog_store::sweeps::{self, Schedule};

use crate::{handler::Shared, probe};

pub(crate) async fn run(shared: &Arc<Shared>, schedule: Schedule, slot: i64) {
    let name = schedule.as_str();
    match sweeps::claim_slot(&shared.store, schedule, slot, &shared.name).await {
        Ok(true) => {}
        Ok(false) => return,
        Err(error) => {
            tracing::warn!(sweep = name, %error, "the slot was not claimed");
            return;
        }
    }
    let started = Instant::now();
    let swept = match schedule {
        Schedule::Probes => probe::run(shared).await,
        schedule => sweeps::run(&shared.store, schedule).await,
    };
    metrics::histogram!("undolog_sweep_duration_seconds", "sweep" => name)
        .record(started.elapsed().as_secs_f64());
    match swept {
        Ok(swept) => {
            metrics::counter!("undolog_swept_total", "sweep" => name).increment(swept.settled);
            if swept.settled > 0 && schedule != Schedule::Cleanup && schedule != Schedule::Reaper {
                tracing::info!(sweep = name, settled = swept.settled, left = swept.left, "swept");
            }
        }
        Err(error) => {
            metrics::counter!("undolog_sweep_errors_total", "sweep" => name).increment(1);
            tracing::warn!(sweep = name, %error, "the sweep did not end");
        }
    }
}
