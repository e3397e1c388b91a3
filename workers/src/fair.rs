//! Fair shares: an organisation with many due rollbacks does not hold up the others'. A ticket is a
//! wake-up, no assignment: a handler whose organisation has its share of this process first serves
//! others that have something due, then its own ticket, then whatever else is due. So the queue,
//! which hands out a few tickets at a time, bounds neither the order nor the speed.

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
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Which organisations this process works for right now.
#[derive(Debug, Clone)]
pub(crate) struct Fair {
    /// Rollbacks that are worked on at the same time,
    places: usize,
    /// and so many more of organisations that nothing is done for: calls of minutes in all places
    /// do not hold up the first call of anybody else.
    spare: usize,
    share: usize,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    running: HashMap<Uuid, usize>,
    nobody_at: Option<Instant>,
    no_newcomer_at: Option<Instant>,
}

impl State {
    fn total(&self) -> usize {
        self.running.values().sum()
    }
}

/// One handler's work for an organisation.
#[derive(Debug)]
pub(crate) struct Turn {
    fair: Fair,
    org_id: Uuid,
}

impl Fair {
    pub(crate) fn new(concurrency: usize) -> Self {
        let places = concurrency.max(1);
        let share = (places / SHARES).max(1);
        Self { places, spare: share, share, state: Arc::default() }
    }

    /// Handlers that the process needs, so that one is left to look for a newcomer.
    pub(crate) const fn handlers(&self) -> usize {
        self.places + self.spare
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that holds it can panic halfway through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins work for an organisation; it ends with the turn. `None`: every place is taken.
    pub(crate) fn turn(&self, org_id: Uuid) -> Option<Turn> {
        let mut state = self.state();
        let total = state.total();
        let running = state.running.get(&org_id).copied().unwrap_or(0);
        let is_free = total < self.places
            || (running == 0 && total < self.places + self.spare && guard!("fair.newcomer"));
        if !is_free {
            return None;
        }
        *state.running.entry(org_id).or_default() += 1;
        drop(state);
        Some(Turn { fair: self.clone(), org_id })
    }

    /// The organisations that have their share already.
    fn over(&self) -> Vec<Uuid> {
        if !guard!("fair.share") {
            return Vec::new();
        }
        let state = self.state();
        let over = state.running.iter().filter(|(_, count)| **count >= self.share);
        over.map(|(org_id, _)| *org_id).collect()
    }

    /// A due rollback of somebody who waits while this organisation has its share already.
    pub(crate) async fn somebody_else(&self, store: &Store, org_id: Uuid) -> Option<(Uuid, Uuid)> {
        let over = self.over();
        if over.contains(&org_id) { self.outside(store, &over).await } else { None }
    }

    /// A due rollback of an organisation that nothing is done for here.
    pub(crate) async fn newcomer(&self, store: &Store) -> Option<(Uuid, Uuid)> {
        let running: Vec<Uuid> = {
            let state = self.state();
            if state.no_newcomer_at.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
                return None;
            }
            state.running.keys().copied().collect()
        };
        let found = one_of(store, &running).await;
        if found.is_none() {
            self.state().no_newcomer_at = Some(Instant::now());
        }
        found
    }

    /// A due rollback: of those below their share first, else of anybody.
    pub(crate) async fn anybody(&self, store: &Store) -> Option<(Uuid, Uuid)> {
        if self.state().total() >= self.places {
            return self.newcomer(store).await;
        }
        let over = self.over();
        if !over.is_empty()
            && let Some(found) = self.outside(store, &over).await
        {
            return Some(found);
        }
        one_of(store, &[]).await
    }

    async fn outside(&self, store: &Store, over: &[Uuid]) -> Option<(Uuid, Uuid)> {
        if self.state().nobody_at.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return None;
        }
        let found = one_of(store, over).await;
        if found.is_none() {
            self.state().nobody_at = Some(Instant::now());
        }
        found
    }
}

/// A due rollback of other organisations than these.
async fn one_of(store: &Store, but: &[Uuid]) -> Option<(Uuid, Uuid)> {
    match walk::due_of_others(store, but).await {
        // At random, so that handlers do not all reach for the same one.
        Ok(due) => {
            let n = random_below(due.len() as u64);
            usize::try_from(n).ok().and_then(|n| due.get(n).copied())
        }
        Err(error) => {
            tracing::warn!(%error, "it is not known who else waits");
            None
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
    fn turns_are_counted_by_organisation() {
        let fair = Fair::new(8);
        let (a, b) = (Uuid::now_v7(), Uuid::now_v7());
        let first = fair.turn(a).expect("a place");
        assert!(fair.over().is_empty());
        let second = fair.turn(a);
        let third = fair.turn(b);
        assert_eq!(fair.over(), [a]);
        drop((first, second, third));
        assert!(fair.state().running.is_empty());
        assert_eq!(Fair::new(1).share, 1);
    }

    #[test]
    fn whoever_has_nothing_running_has_a_place() {
        let fair = Fair::new(8);
        let (a, b, c, d) = (Uuid::now_v7(), Uuid::now_v7(), Uuid::now_v7(), Uuid::now_v7());
        let turns: Vec<Turn> = (0..10).filter_map(|_| fair.turn(a)).collect();
        assert_eq!(turns.len(), 8, "alone, it has every place");
        let others = (fair.turn(b).expect("a place"), fair.turn(c).expect("a place"));
        assert!(fair.turn(b).is_none(), "it has one");
        assert!(fair.turn(d).is_none(), "the spare ones are taken");
        drop(others);
        drop(fair.turn(d).expect("a place"));
        assert_eq!(fair.handlers(), 10);
    }
}
