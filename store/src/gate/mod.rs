//! Gates: what a compensation call waits for before its attempt is written. Pauses of operators,
//! limits of its function, the breaker of its route: the same function at the same host. Waiting is
//! not an attempt and costs nothing.
//!
//! Lock order: gates come after the undo entries of the step, first the function's limit, then the
//! route's breaker. Neither is waited for inside the database: a step that waits there holds a
//! connection and its session.

mod breaker;
mod limits;

use chrono::{DateTime, Duration, Utc};
use sqlx::FromRow;
use undolog_core::limits::JITTER_PERCENT_MAX;
use uuid::Uuid;

pub(crate) use breaker::observe;
pub use limits::Limits;

use crate::{backlog::WaitsFor, error::StepError, tenant::Tenant};

/// How long a paused rollback sleeps before it looks again; a resume wakes it up earlier.
const PAUSE_MS: i64 = 5_000;

/// What a breaker is about: a broken path of an API says nothing about the others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Route<'a> {
    /// The function.
    pub(crate) compensation_fn: &'a str,
    /// Scheme, host and port.
    pub(crate) host: &'a str,
}

/// A call that wants to be made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish<'a> {
    /// The entry.
    pub(crate) undo_id: Uuid,
    /// The route.
    pub(crate) route: Route<'a>,
    /// The function's limits.
    pub(crate) limits: Limits,
    /// The step's time.
    pub(crate) t: DateTime<Utc>,
    /// A random number from 0 to 50.
    pub(crate) jitter_percent: u64,
}

impl Wish<'_> {
    /// A time from `ms` to `ms + spread_ms` from now, at random: what waits together must not wake
    /// together.
    fn later(&self, ms: i64, spread_ms: i64) -> DateTime<Utc> {
        self.after(self.t + Duration::milliseconds(ms), spread_ms)
    }

    fn after(&self, at: DateTime<Utc>, spread_ms: i64) -> DateTime<Utc> {
        let percent = self.jitter_percent.min(JITTER_PERCENT_MAX);
        let share = i64::try_from(percent).unwrap_or(0);
        let most = i64::try_from(JITTER_PERCENT_MAX).unwrap_or(50);
        // Never now or earlier: that would make a hot loop.
        let at = at.max(self.t + Duration::milliseconds(100));
        at + Duration::milliseconds(spread_ms * share / most)
    }
}

#[derive(Debug, FromRow)]
struct Look {
    is_paused: bool,
    breaker: Option<String>,
}

/// Asks every gate. `None`: the call may be made, and its attempt has to be written in this
/// transaction. Else: not before this time, because of this gate.
pub(crate) async fn ask(
    tx: &mut Tenant,
    wish: &Wish<'_>,
) -> Result<Option<(DateTime<Utc>, WaitsFor)>, StepError> {
    let org_id = tx.org_id();
    let look: Look = sqlx::query_as(include_str!("../../sql/gate_look.sql"))
        .bind(org_id)
        .bind(wish.route.compensation_fn)
        .bind(wish.route.host)
        .fetch_one(tx.conn())
        .await?;
    let wait = if look.is_paused && crate::guard!("gate.pause") {
        Some((wish.later(PAUSE_MS, PAUSE_MS / 2), WaitsFor::Pause))
    } else if let Some(until) = limits::ask(tx, wish).await? {
        Some((until, WaitsFor::Limit))
    } else if look.breaker.is_some_and(|state| state != "closed") && crate::guard!("gate.breaker") {
        breaker::ask(tx, wish).await?.map(|until| (until, WaitsFor::Breaker))
    } else {
        None
    };
    match wait {
        Some((_, gate)) => {
            metrics::counter!("undolog_gate_waits_total", "gate" => gate.as_str()).increment(1);
        }
        // Only what is really called is counted.
        None => limits::count(tx, wish).await?,
    }
    Ok(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_wait_together_wake_apart_and_never_at_once() {
        let t = DateTime::from_timestamp(1_000_000, 0).expect("a time");
        let wish = |jitter_percent| Wish {
            undo_id: Uuid::nil(),
            route: Route { compensation_fn: "undo", host: "https://pay.example" },
            limits: Limits::default(),
            t,
            jitter_percent,
        };
        let ms = |at: DateTime<Utc>| (at - t).num_milliseconds();
        assert_eq!(ms(wish(0).later(1_000, 3_000)), 1_000);
        assert_eq!(ms(wish(25).later(1_000, 3_000)), 2_500);
        assert_eq!(ms(wish(50).later(1_000, 3_000)), 4_000);
        assert_eq!(ms(wish(99).later(1_000, 3_000)), 4_000);
        assert_eq!(ms(wish(0).after(t - Duration::hours(1), 3_000)), 100);
    }
}
