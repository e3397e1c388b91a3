//! The database's clock as the test moves it, and the minutes that really passed.

use std::fmt;

use proptest::prelude::Rng;
use undolog_tests::world::Database;
use undolog_tests::{World, eventually};

use super::plan::Dice;

/// Seconds of one walk of the clock. Engines tick every five seconds, and more than fifteen between
/// two ticks are an outage: time that passes is ticked at this pace.
const WALK_SECONDS: u64 = 10;
const WALKS_A_MINUTE: usize = 6;
/// A jump comes about every so many minutes.
const JUMP_EVERY: u32 = 6;
/// How far the clock is wrong at most.
const OFF_MAX: i64 = 10;

/// What happens to the clock.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// Time passes.
    Walk,
    /// It jumps by so many minutes.
    Jump(i64),
    /// It jumps and comes back before anything else happens.
    Glitch(i64),
}

/// The clock.
pub(super) struct Clock {
    pub(super) seed: u64,
    /// The minute of the last jump.
    pub(super) jumped_at: u64,
    dice: Dice,
    walks: u64,
    /// How far it is off now, in minutes.
    off: i64,
    forward: u32,
    back: u32,
    glitches: u32,
}

impl Clock {
    pub(super) fn new(seed: u64) -> Self {
        let dice = Dice::new(seed, u64::MAX);
        Self { seed, jumped_at: 0, dice, walks: 0, off: 0, forward: 0, back: 0, glitches: 0 }
    }

    /// Minutes that have passed, whatever the clock says.
    pub(super) fn minutes(&self) -> u64 {
        self.walks * WALK_SECONDS / 60
    }

    /// What happens in the next minute, each after so many agents have acted; the last one first.
    pub(super) fn events(&mut self, agents: usize, jumps: bool) -> Vec<(usize, Event)> {
        let mut events: Vec<(usize, Event)> = Vec::new();
        for _ in 0..WALKS_A_MINUTE {
            events.push((self.dice.0.random_range(0..=agents), Event::Walk));
        }
        if jumps && self.dice.one_in(JUMP_EVERY) {
            let up = if self.off.abs() < OFF_MAX { self.dice.one_in(2) } else { self.off < 0 };
            let by = if up { 10 } else { -10 };
            let at = self.dice.0.random_range(0..=agents);
            if self.dice.one_in(5) {
                events.push((at, Event::Glitch(by)));
            } else {
                self.off += by;
                events.push((at, Event::Jump(by)));
            }
        }
        events.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        events
    }

    pub(super) async fn happen(&mut self, world: &World, event: Event) {
        let Database::Private(server) = &world.database else { panic!("a clock of its own") };
        let step = |minutes| server.clock().step(chrono::Duration::minutes(minutes));
        match event {
            Event::Walk => {
                server.clock().advance(std::time::Duration::from_secs(WALK_SECONDS));
                self.walks += 1;
                // As an engine does; a step is for it to see.
                sqlx::query("SELECT undolog_tick('engine')")
                    .execute(world.pool())
                    .await
                    .expect("a tick");
                return;
            }
            Event::Jump(by) => {
                step(by);
                *(if by > 0 { &mut self.forward } else { &mut self.back }) += 1;
            }
            Event::Glitch(by) => {
                step(by);
                self.glitches += 1;
                sqlx::query("SELECT clock_timestamp()").execute(world.pool()).await.expect("now");
                step(-by);
            }
        }
        self.jumped_at = self.minutes();
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { forward, back, glitches, jumped_at, .. } = self;
        write!(f, "{forward} jumps forward, {back} back, {glitches} and back at once, ")?;
        write!(f, "the last in minute {jumped_at}")
    }
}

/// Waits until the workers have done what is due.
pub(super) async fn idle(world: &World) {
    let due = "SELECT count(*) FROM undolog_rollbacks WHERE state IN ('draining', 'walking') AND \
        (due_at <= clock_timestamp() \
        OR (lease_owner IS NOT NULL AND lease_expires_at > clock_timestamp()))";
    eventually("the workers do what is due", || async {
        let due: i64 = sqlx::query_scalar(due).fetch_one(world.pool()).await.expect("due");
        if due == 0 { Ok(()) } else { Err(due) }
    })
    .await;
}

/// Waits until every sweep of some seconds has run once more.
pub(super) async fn swept(world: &World) {
    let fences = "SELECT array_agg(fence ORDER BY name) FROM undolog_schedules \
        WHERE name IN ('reaper', 'grants', 'sessions', 'approvals')";
    let fences = || async {
        let all: Vec<i64> = sqlx::query_scalar(fences).fetch_one(world.pool()).await.expect("all");
        all
    };
    let before = fences().await;
    eventually("the sweeps run", || async {
        let now = fences().await;
        if now.iter().zip(&before).all(|(now, before)| now > before) { Ok(()) } else { Err(now) }
    })
    .await;
}
