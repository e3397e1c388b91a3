//! How many calls of a compensation function run at once, and how many begin within a minute.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::FromRow;

use super::Wish;
use crate::{error::StepError, tenant::Tenant};

/// How long a call sleeps that found no place: about as long as a call takes.
const PLACE_MS: i64 = 1_000;
/// What is added at random, so that those who wait for one place do not come together.
const SPREAD_MS: i64 = 3_000;

/// Whoever holds the lock writes one attempt and lets go. It is tried a few times, with this pause;
/// then the call sleeps like one that found no place.
const TRIES: u32 = 4;
const BRIEF: Duration = Duration::from_millis(10);
const BUSY_MS: i64 = 200;

/// The limits of a compensation function; `None`: there is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Calls at the same time.
    pub concurrency_max: Option<i32>,
    /// Calls that begin within any minute.
    pub rate_per_minute: Option<i32>,
}

#[derive(Debug, FromRow)]
struct Room {
    running: i64,
    /// Until when no call may begin, if the rate is used up.
    full_until: Option<DateTime<Utc>>,
}

/// Asks for a place under the function's lock, which is held until the attempt is committed: of any
/// number of workers that ask together, no more get one than there are.
pub(super) async fn ask(
    tx: &mut Tenant,
    wish: &Wish<'_>,
) -> Result<Option<DateTime<Utc>>, StepError> {
    let Limits { concurrency_max, rate_per_minute } = wish.limits;
    if (concurrency_max, rate_per_minute) == (None, None) || !crate::guard!("gate.limit") {
        return Ok(None);
    }
    let org_id = tx.org_id();
    if crate::guard!("gate.limit_lock") && !lock(tx, wish).await? {
        return Ok(Some(wish.later(BUSY_MS, BUSY_MS)));
    }
    let room: Room = sqlx::query_as(include_str!("../../sql/gate_room.sql"))
        .bind(org_id)
        .bind(wish.route.compensation_fn)
        .bind(rate_per_minute)
        .bind(wish.t)
        .fetch_one(tx.conn())
        .await?;
    if concurrency_max.is_some_and(|most| room.running >= i64::from(most)) {
        return Ok(Some(wish.later(PLACE_MS, SPREAD_MS)));
    }
    Ok(room.full_until.map(|until| wish.after(until, SPREAD_MS)))
}

/// Takes the function's lock until the transaction ends. `false`: others hold it. Waiting for it in
/// the database would hold this connection and the session's lock, and a crowd that asks for one
/// function would hold every connection of the worker.
async fn lock(tx: &mut Tenant, wish: &Wish<'_>) -> Result<bool, StepError> {
    let key = format!("{}:{}", tx.org_id(), wish.route.compensation_fn);
    for attempt in 1..=TRIES {
        let locked: bool = sqlx::query_scalar(
            "SELECT pg_try_advisory_xact_lock(hashtextextended('undolog.limit:' || $1, 0))",
        )
        .bind(&key)
        .fetch_one(tx.conn())
        .await?;
        if locked {
            return Ok(true);
        }
        if attempt < TRIES {
            tokio::time::sleep(BRIEF).await;
        }
    }
    metrics::counter!("undolog_limit_locks_busy_total").increment(1);
    Ok(false)
}

/// Counts the call that every gate has let through. The lock of [`ask`] is held.
pub(super) async fn count(tx: &mut Tenant, wish: &Wish<'_>) -> Result<(), StepError> {
    if wish.limits.rate_per_minute.is_none() {
        return Ok(());
    }
    let org_id = tx.org_id();
    sqlx::query(include_str!("../../sql/gate_count.sql"))
        .bind(org_id)
        .bind(wish.route.compensation_fn)
        .bind(wish.t)
        .execute(tx.conn())
        .await?;
    Ok(())
}
