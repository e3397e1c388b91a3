//! Who may use a connection, and when.
//!
//! Before a step gets a connection it queues twice, both times without one: behind the other steps
//! of its session, then behind everybody else (`Turns`). So a session whose row somebody holds,
//! or that is asked a hundred things at once, costs this process one connection and not all of
//! them. A step that does not know its session beforehand queues with the others of its
//! organisation, which together may use half of the connections.
//!
//! A step that waited too long for a lock gives its connection back and tries again, with few
//! others of its kind at a time: however many sessions are stuck, the rest is served.
//!
//! Reports (Commit, Fail, Heartbeat) may also use connections that nothing else may: what was done
//! is written down also while everything else waits.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use uuid::Uuid;

use crate::{
    error::StepError,
    turns::{Place, Turns},
};

/// Connections that only reports may use.
pub(crate) const REPORT_CONNECTIONS: u32 = 2;
/// Steps that met a held lock and try again at the same time.
const HELD_TRIES: u32 = 2;
/// How long a step waits for a lock in all, and a caller for its session while nobody gets on
/// there.
pub(crate) const LOCK_PATIENCE: Duration = Duration::from_secs(10);

/// Which connections a step may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Those of everybody.
    Work,
    /// Also those that are kept for reports.
    Report,
}

/// What a step queues behind: steps of the same key are served one after the other, or few at a
/// time. The organisation is part of it, so that nobody can stand in another one's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Key {
    /// A session of an organisation.
    Session(Uuid, Uuid),
    /// The steps of an organisation that name no session.
    Org(Uuid),
}

/// A step's turn: with its session, and with a connection.
#[derive(Debug)]
pub struct Turn {
    place: Place,
    _held: Option<Place>,
    queued: Option<Queued>,
    is_reserved: bool,
}

impl Turn {
    /// Ends the turn and says whether the database answered.
    pub fn end(self, was_answered: bool) {
        self.place.end(was_answered);
        if let Some(queued) = self.queued {
            queued.end(was_answered);
        }
    }

    /// Whether it came on a connection that is kept for reports.
    pub(crate) fn is_reserved(&self) -> bool {
        self.is_reserved
    }

    /// Gives the connection back and keeps the turn with the session.
    pub(crate) fn without_connection(self) -> Option<Queued> {
        self.queued
    }
}

/// All queues of one pool.
#[derive(Debug, Clone)]
pub(crate) struct Lanes {
    steps: Turns,
    reads: Turns,
    reports: Turns,
    held: Turns,
    queues: Queues,
}

impl Lanes {
    /// `patience` is how long a caller waits for a connection while nobody is served.
    pub(crate) fn new(connections: u32, patience: Duration) -> Self {
        // Slow reads must leave something to the steps, which have a turn of their own but share
        // the connections.
        let reading = connections.saturating_sub(connections.div_ceil(4)).max(1);
        Self {
            steps: Turns::new(connections, patience),
            reads: Turns::new(reading, patience),
            reports: Turns::new(REPORT_CONNECTIONS, patience),
            held: Turns::new(HELD_TRIES, LOCK_PATIENCE),
            queues: Queues { unnamed: (connections / 2).max(1), open: Arc::default() },
        }
    }

    /// Waits for a step's turn.
    pub(crate) async fn step(&self, key: Key, lane: Lane) -> Result<Turn, StepError> {
        let queued = match crate::guard!("lanes.session") {
            true => Some(self.queues.wait(key).await?),
            false => None,
        };
        let (place, is_reserved) = match lane {
            Lane::Work => (self.steps.wait().await?, false),
            Lane::Report => self.reporting().await?,
        };
        Ok(Turn { place, _held: None, queued, is_reserved })
    }

    /// Waits for the next try of a step that met a held lock.
    pub(crate) async fn again(&self, queued: Option<Queued>) -> Result<Turn, StepError> {
        let held = Some(self.held.wait().await?);
        let place = self.steps.wait().await?;
        Ok(Turn { place, _held: held, queued, is_reserved: false })
    }

    /// Waits for a reader's turn.
    pub(crate) async fn reading(&self) -> Result<Turn, StepError> {
        let place = self.reads.wait().await?;
        Ok(Turn { place, _held: None, queued: None, is_reserved: false })
    }

    async fn reporting(&self) -> Result<(Place, bool), StepError> {
        if !crate::guard!("lanes.reports") {
            return Ok((self.steps.wait().await?, false));
        }
        tokio::select! {
            biased;
            Ok(place) = self.steps.wait() => Ok((place, false)),
            Ok(place) = self.reports.wait() => Ok((place, true)),
            else => Err(StepError::Db(sqlx::Error::PoolTimedOut)),
        }
    }
}

/// The queues that somebody stands in.
#[derive(Debug, Clone)]
struct Queues {
    /// How many steps without a session an organisation may run at once.
    unnamed: u32,
    open: Arc<Mutex<HashMap<Key, (usize, Turns)>>>,
}

impl Queues {
    fn open(&self) -> MutexGuard<'_, HashMap<Key, (usize, Turns)>> {
        // Nothing that holds it can panic halfway through a change.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn wait(&self, key: Key) -> Result<Queued, StepError> {
        let at_once = match key {
            Key::Session(..) => 1,
            Key::Org(_) => self.unnamed,
        };
        let turns = {
            let mut open = self.open();
            let (members, turns) =
                open.entry(key).or_insert_with(|| (0, Turns::new(at_once, LOCK_PATIENCE)));
            *members += 1;
            turns.clone()
        };
        // Left again however this ends, also when its caller goes away while it waits.
        let member = Member { queues: self.clone(), key };
        Ok(Queued { place: turns.wait().await?, _member: member })
    }
}

/// A step's turn with its session.
#[derive(Debug)]
pub(crate) struct Queued {
    place: Place,
    _member: Member,
}

impl Queued {
    fn end(self, was_answered: bool) {
        self.place.end(was_answered);
    }
}

/// Stands in a queue until it is dropped; a queue without members is forgotten.
#[derive(Debug)]
struct Member {
    queues: Queues,
    key: Key,
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut open = self.queues.open();
        if let Some((members, _)) = open.get_mut(&self.key) {
            *members -= 1;
            if *members == 0 {
                open.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    fn session(n: u128) -> Key {
        Key::Session(Uuid::nil(), Uuid::from_u128(n))
    }

    #[tokio::test]
    async fn one_session_has_one_connection_and_leaves_nothing_behind() {
        let lanes = Lanes::new(2, PATIENCE);
        let first = lanes.step(session(1), Lane::Work).await.expect("a turn");
        let second = lanes.step(session(1), Lane::Work);
        tokio::pin!(second);
        assert!(futures::poll!(&mut second).is_pending(), "its session is busy");
        let other = lanes.step(session(2), Lane::Work).await.expect("a turn");
        other.end(true);
        first.end(true);
        second.await.expect("its turn").end(true);
        {
            let gone = lanes.step(session(3), Lane::Work).await.expect("a turn");
            let waits = lanes.step(session(3), Lane::Work);
            tokio::pin!(waits);
            assert!(futures::poll!(&mut waits).is_pending());
            drop(gone);
        }
        assert!(lanes.queues.open().is_empty(), "nobody stands in a queue any more");
    }

    #[tokio::test]
    async fn a_report_finds_a_connection_while_all_others_are_taken() {
        let lanes = Lanes::new(1, PATIENCE);
        let work = lanes.step(session(1), Lane::Work).await.expect("a turn");
        let report = lanes.step(session(2), Lane::Report).await.expect("a turn");
        assert!(report.is_reserved() && !work.is_reserved());
        let more = lanes.step(session(3), Lane::Work);
        tokio::pin!(more);
        assert!(futures::poll!(&mut more).is_pending(), "nothing else may use it");
    }

    #[tokio::test]
    async fn few_who_met_a_held_lock_try_again_at_once() {
        let lanes = Lanes::new(8, PATIENCE);
        let held: Vec<_> = futures::future::join_all((0..HELD_TRIES).map(|_| lanes.again(None)))
            .await
            .into_iter()
            .collect::<Result<_, _>>()
            .expect("their turns");
        let more = lanes.again(None);
        tokio::pin!(more);
        assert!(futures::poll!(&mut more).is_pending());
        lanes.step(session(1), Lane::Work).await.expect("others are served").end(true);
        drop(held);
        more.await.expect("its turn").end(true);
    }

    #[tokio::test]
    async fn steps_without_a_session_leave_half_to_others() {
        let lanes = Lanes::new(4, PATIENCE);
        let (a, b) = (Key::Org(Uuid::from_u128(1)), Key::Org(Uuid::from_u128(2)));
        let _two = [
            lanes.step(a, Lane::Work).await.expect("a turn"),
            lanes.step(a, Lane::Work).await.expect("a turn"),
        ];
        let third = lanes.step(a, Lane::Work);
        tokio::pin!(third);
        assert!(futures::poll!(&mut third).is_pending());
        lanes.step(b, Lane::Work).await.expect("another organisation's turn").end(true);
    }
}
