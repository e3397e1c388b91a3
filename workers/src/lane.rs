//! The lane of suspects: entries whose last call ended its process. They wait for each other and
//! for nobody else, and hold no handler while they wait. Whoever has least gets the next place, and
//! no organisation has all of them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;
use uuid::Uuid;

/// Suspects whose calls are made at the same time, at most: each has a process of its own.
const PLACES_MAX: usize = 8;
/// Suspects of an organisation that stand in the line. More are looked at again later.
const LINE_MAX: usize = 32;

/// The lane of one worker. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Lane {
    places: usize,
    /// Places that one organisation may have: a quarter stays free for others.
    share: usize,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    orgs: Mutex<HashMap<Uuid, Line>>,
    freed: Notify,
}

/// An organisation's suspects.
#[derive(Debug, Default)]
struct Line {
    waiting: usize,
    running: usize,
}

/// A suspect in its organisation's line; the place that it gets goes with it.
#[derive(Debug)]
pub(crate) struct Seat {
    lane: Lane,
    org_id: Uuid,
    has_turn: bool,
}

impl Lane {
    pub(crate) fn new(concurrency: usize) -> Self {
        let places = concurrency.clamp(2, PLACES_MAX);
        let share = (places - places / 4).min(places - 1);
        Self { places, share, state: Arc::default() }
    }

    fn orgs(&self) -> MutexGuard<'_, HashMap<Uuid, Line>> {
        // Nothing that holds it can panic halfway through a change.
        self.state.orgs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters the line. `None`: it is full.
    pub(crate) fn enter(&self, org_id: Uuid) -> Option<Seat> {
        let mut orgs = self.orgs();
        let line = orgs.entry(org_id).or_default();
        if line.waiting + line.running >= LINE_MAX {
            return None;
        }
        line.waiting += 1;
        drop(orgs);
        Some(Seat { lane: self.clone(), org_id, has_turn: false })
    }

    /// Takes a place for an organisation, if it is its turn.
    fn take(&self, org_id: Uuid) -> bool {
        let mut orgs = self.orgs();
        let total: usize = orgs.values().map(|line| line.running).sum();
        let own = orgs.get(&org_id).map_or(0, |line| line.running);
        let is_next = orgs.values().all(|line| line.waiting == 0 || line.running >= own);
        let may = total < self.places && own < self.share && is_next;
        if let Some(line) = orgs.get_mut(&org_id).filter(|_| may) {
            line.waiting -= 1;
            line.running += 1;
        }
        may
    }
}

impl Seat {
    /// Waits for a place, which is held until the seat is left.
    pub(crate) async fn turn(&mut self) {
        let state = Arc::clone(&self.lane.state);
        loop {
            // Registered before the look, so that no change is missed.
            let freed = state.freed.notified();
            if self.lane.take(self.org_id) {
                self.has_turn = true;
                // Whose turn comes next may have changed.
                state.freed.notify_waiters();
                return;
            }
            freed.await;
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut orgs = self.lane.orgs();
        if let Some(line) = orgs.get_mut(&self.org_id) {
            let count = if self.has_turn { &mut line.running } else { &mut line.waiting };
            *count -= 1;
            if line.waiting + line.running == 0 {
                orgs.remove(&self.org_id);
            }
        }
        drop(orgs);
        self.lane.state.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn has_turn(seat: &mut Seat) -> bool {
        tokio::time::timeout(Duration::from_millis(20), seat.turn()).await.is_ok()
    }

    #[tokio::test]
    async fn whoever_has_least_is_next_and_nobody_has_every_place() {
        let lane = Lane::new(32);
        let (a, b) = (Uuid::now_v7(), Uuid::now_v7());
        let mut seats: Vec<Seat> = (0..40).filter_map(|_| lane.enter(a)).collect();
        assert_eq!(seats.len(), LINE_MAX, "the line has an end");
        for seat in &mut seats[..6] {
            assert!(has_turn(seat).await, "six of eight are its share");
        }
        assert!(!has_turn(&mut seats[6]).await);
        let mut others: Vec<Seat> = (0..3).filter_map(|_| lane.enter(b)).collect();
        assert!(has_turn(&mut others[0]).await, "another organisation does not wait");
        assert!(has_turn(&mut others[1]).await);
        assert!(!has_turn(&mut others[2]).await, "every place is taken");
        seats.remove(0);
        assert!(!has_turn(&mut seats[5]).await, "it has five, the other two");
        assert!(has_turn(&mut others[2]).await, "whoever has least is next");
        drop((seats, others));
        assert!(lane.orgs().is_empty());
    }

    #[tokio::test]
    async fn a_small_lane_has_a_place_for_two() {
        let lane = Lane::new(1);
        let (a, b) = (Uuid::now_v7(), Uuid::now_v7());
        let (mut first, mut second) = (lane.enter(a).expect("a"), lane.enter(a).expect("a"));
        assert!(has_turn(&mut first).await);
        assert!(!has_turn(&mut second).await);
        assert!(has_turn(&mut lane.enter(b).expect("b")).await);
        drop(first);
        assert!(has_turn(&mut second).await);
    }
}
