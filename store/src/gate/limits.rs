//! How many calls of a compensation function run at once, and how many begin within a minute.

use chrono::{DateTime, Duration, Utc};
use sqlx::FromRow;

use super::Wish;
use crate::{error::StepError, tenant::Tenant};

/// How long a call sleeps that found no place: about as long as a call takes.
const PLACE_MS: i64 = 1_000;
/// What is added at random, so that those who wait for one place do not come together.
const SPREAD_MS: i64 = 3_000;

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
    /// When the oldest of the last `rate_per_minute` calls began, if that was within a minute.
    full_since: Option<DateTime<Utc>>,
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
    if crate::guard!("gate.limit_lock") {
        sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('undolog.limit:' || $1, 0))")
            .bind(format!("{org_id}:{}", wish.compensation_fn))
            .execute(tx.conn())
            .await?;
    }
    let room: Room = sqlx::query_as(include_str!("../../sql/gate_room.sql"))
        .bind(org_id)
        .bind(wish.compensation_fn)
        .bind(rate_per_minute)
        .bind(wish.t)
        .fetch_one(tx.conn())
        .await?;
    if concurrency_max.is_some_and(|most| room.running >= i64::from(most)) {
        return Ok(Some(wish.later(PLACE_MS, SPREAD_MS)));
    }
    Ok(room.full_since.map(|since| wish.after(since + Duration::minutes(1), SPREAD_MS)))
}
