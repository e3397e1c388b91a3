//! Fair shares: an organisation with many due rollbacks does not hold up the others'. A ticket is a
//! wake-up, no assignment: a handler whose organisation has more than its share of this process
//! first serves others that have something due, then its own ticket.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use undolog_store::{Store, guard, walk};
use uuid::Uuid;

use crate::walk::random_below;

/// The share of a process' handlers that an organisation may have while others wait.
const SHARES: usize = 4;
/// After finding nobody waiting, for so long nobody is looked for: a look reads past the backlog.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Which organisations this process works for right now.
#[derive(Debug, Clone)]
pub(crate) struct Fair {
    share: usize,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    running: HashMap<Uuid, usize>,
    nobody_at: Option<Instant>,
}

/// One handler's work for an organisation.
#[derive(Debug)]
pub(crate) struct Turn {
    fair: Fair,
    org_id: Uuid,
}

impl Fair {
    pub(crate) fn new(concurrency: usize) -> Self {
        Self { share: (concurrency / SHARES).max(1), state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that holds it can panic halfway through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins work for an organisation; it ends with the turn.
    pub(crate) fn turn(&self, org_id: Uuid) -> Turn {
        *self.state().running.entry(org_id).or_default() += 1;
        Turn { fair: self.clone(), org_id }
    }

    /// The organisations that have their share already, if this one would be over it.
    fn over(&self, org_id: Uuid) -> Option<Vec<Uuid>> {
        let state = self.state();
        let is_over = |count: &usize| *count >= self.share;
        if !state.running.get(&org_id).is_some_and(is_over)
            || state.nobody_at.is_some_and(|at| at.elapsed() < LOOK_EVERY)
        {
            return None;
        }
        Some(state.running.iter().filter(|(_, n)| is_over(n)).map(|(org, _)| *org).collect())
    }

    /// A due rollback of somebody who waits while this organisation is over its share.
    pub(crate) async fn somebody_else(&self, store: &Store, org_id: Uuid) -> Option<(Uuid, Uuid)> {
        let over = self.over(org_id).filter(|_| guard!("fair.share"))?;
        match walk::due_of_others(store, &over).await {
            Ok(due) if due.is_empty() => {
                self.state().nobody_at = Some(Instant::now());
                None
            }
            Ok(due) => {
                // At random, so that handlers do not all reach for the same one.
                let n = random_below(due.len() as u64);
                usize::try_from(n).ok().and_then(|n| due.get(n).copied())
            }
            Err(error) => {
                tracing::warn!(%error, "it is not known who else waits");
                None
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.fair.state();
        if let Some(count) = state.running.get_mut(&self.org_id) {
            *count -= 1;
            if *count == 0 {
                state.running.remove(&self.org_id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_over_their_share_look_for_others() {
        let fair = Fair::new(8);
        let (a, b) = (Uuid::now_v7(), Uuid::now_v7());
        let first = fair.turn(a);
        assert_eq!(fair.over(a), None);
        let second = fair.turn(a);
        assert_eq!(fair.over(a), Some(vec![a]));
        assert_eq!(fair.over(b), None);
        fair.state().nobody_at = Some(Instant::now());
        assert_eq!(fair.over(a), None, "nobody waited a moment ago");
        drop((first, second));
        assert!(fair.state().running.is_empty());
        assert_eq!(Fair::new(1).share, 1);
    }
}
