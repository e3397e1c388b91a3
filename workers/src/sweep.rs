//! Runs a schedule's slot, if this worker wins it.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use undolog_store::sweeps::{self, Schedule};

use crate::{handler::Shared, probe};

/// The kinds of sweeps that this process runs now. Each kind runs once at a time, and has a
/// handler: one that hangs keeps its own next run waiting and nothing else.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kinds(Arc<Mutex<HashSet<Schedule>>>);

/// A sweep that runs.
#[derive(Debug)]
struct Running {
    kinds: Kinds,
    schedule: Schedule,
}

impl Kinds {
    fn all(&self) -> MutexGuard<'_, HashSet<Schedule>> {
        // Nothing that holds it can panic halfway through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: it runs already.
    fn begin(&self, schedule: Schedule) -> Option<Running> {
        self.all().insert(schedule).then(|| Running { kinds: self.clone(), schedule })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kinds.all().remove(&self.schedule);
    }
}

pub(crate) async fn run(shared: &Arc<Shared>, schedule: Schedule, slot: i64) {
    let name = schedule.as_str();
    // The slot stays free: another process takes it, or the timer asks again in a second.
    let Some(_running) = shared.sweeping.begin(schedule) else { return };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_runs_once_at_a_time_and_no_kind_keeps_another_waiting() {
        let kinds = Kinds::default();
        let running: Vec<Running> =
            Schedule::ALL.into_iter().filter_map(|kind| kinds.begin(kind)).collect();
        assert_eq!(running.len(), Schedule::ALL.len());
        assert!(kinds.begin(Schedule::Probes).is_none());
        drop(running);
        assert!(kinds.begin(Schedule::Probes).is_some());
    }
}
