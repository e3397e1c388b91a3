//! The circuit breaker of a route, which is one compensation at one host: when most of its calls in
//! the last minute failed it gets a pause, then one call of its own to show that it is back.

use chrono::{DateTime, Duration, Utc};
use sqlx::FromRow;
use undolog_core::retry::CallOutcome;
use uuid::Uuid;

use super::{Route, Wish};
use crate::{error::StepError, tenant::Tenant, walk::Outcome};

/// Calls that a verdict needs.
const CALLS_MIN: i64 = 10;
/// The newest calls that are looked at, within the window.
const CALLS_MAX: i64 = 100;
/// How far back a call counts.
const WINDOW_MS: i64 = 60_000;
/// The first pause; it doubles each time that the one call fails too.
const OPEN_MS: i64 = 30_000;
const OPEN_MS_MAX: i64 = 300_000;
/// How long others sleep while one call is on its way.
const PROBE_MS: i64 = 3_000;
/// What is added at random when the pause is over.
const SPREAD_MS: i64 = 10_000;

#[derive(Debug, FromRow)]
struct Breaker {
    state: String,
    opened_at: Option<DateTime<Utc>>,
    opened_count: i32,
    probe_undo_id: Option<Uuid>,
}

/// The pause after the breaker opened for the `n`-th time in a row, from 1.
fn pause_ms(n: i32) -> i64 {
    let doublings = u32::try_from(n.saturating_sub(1)).unwrap_or(0).min(10);
    (OPEN_MS << doublings).min(OPEN_MS_MAX)
}

/// Asks a breaker that is not closed. One call is let through when the pause is over.
pub(super) async fn ask(
    tx: &mut Tenant,
    wish: &Wish<'_>,
) -> Result<Option<DateTime<Utc>>, StepError> {
    let org_id = tx.org_id();
    let row: Option<Breaker> = sqlx::query_as(include_str!("../../sql/gate_breaker.sql"))
        .bind(org_id)
        .bind(wish.route.compensation_fn)
        .bind(wish.route.host)
        .fetch_optional(tx.conn())
        .await?;
    // Somebody else is deciding about it right now.
    let Some(row) = row else { return Ok(Some(wish.later(PROBE_MS, PROBE_MS))) };
    let is_mine = row.probe_undo_id == Some(wish.undo_id);
    match row.state.as_str() {
        "closed" => return Ok(None),
        "half_open" if is_mine => return Ok(None),
        "half_open" => {
            if is_on_its_way(tx, row.probe_undo_id, wish.t).await? {
                return Ok(Some(wish.later(PROBE_MS, PROBE_MS)));
            }
        }
        _ => {
            let opened_at = row.opened_at.unwrap_or(wish.t);
            let until = opened_at + Duration::milliseconds(pause_ms(row.opened_count));
            // A clock that stepped back leaves openings ahead of it.
            let is_ahead = opened_at > wish.t + Duration::minutes(1);
            if until > wish.t && !is_ahead {
                return Ok(Some(wish.after(until, SPREAD_MS)));
            }
        }
    }
    sqlx::query(
        "UPDATE undolog_route_breakers SET state = 'half_open', probe_undo_id = $4 \
         WHERE org_id = $1 AND compensation_fn = $2 AND host = $3",
    )
    .bind(org_id)
    .bind(wish.route.compensation_fn)
    .bind(wish.route.host)
    .bind(wish.undo_id)
    .execute(tx.conn())
    .await?;
    Ok(None)
}

/// Whether an entry's call, the one that a breaker has let through, is on its way.
async fn is_on_its_way(
    tx: &mut Tenant,
    undo_id: Option<Uuid>,
    t: DateTime<Utc>,
) -> Result<bool, StepError> {
    let org_id = tx.org_id();
    Ok(sqlx::query_scalar(include_str!("../../sql/gate_breaker_trial.sql"))
        .bind(org_id)
        .bind(undo_id)
        .bind(t)
        .fetch_one(tx.conn())
        .await?)
}

/// A call of a route has ended: what does its breaker learn? Only failures that a retry can mend
/// speak against the route; whatever else it answers shows that it is there.
pub(crate) async fn observe(
    tx: &mut Tenant,
    route: Route<'_>,
    is_probe: bool,
    outcome: Outcome,
    t: DateTime<Utc>,
) -> Result<(), StepError> {
    match outcome {
        Outcome::Ended(CallOutcome::Retry) => failed(tx, route, is_probe, t).await,
        Outcome::Ended(_) if is_probe => close(tx, route, t).await,
        // A call that never ended says nothing; the next one takes the probe's place.
        _ => Ok(()),
    }
}

async fn close(tx: &mut Tenant, route: Route<'_>, t: DateTime<Utc>) -> Result<(), StepError> {
    let org_id = tx.org_id();
    sqlx::query(
        "UPDATE undolog_route_breakers SET state = 'closed', window_started_at = $4, calls = 0, \
         failures = 0, opened_at = NULL, probe_undo_id = NULL, opened_count = 0 \
         WHERE org_id = $1 AND compensation_fn = $2 AND host = $3",
    )
    .bind(org_id)
    .bind(route.compensation_fn)
    .bind(route.host)
    .bind(t)
    .execute(tx.conn())
    .await?;
    metrics::counter!("undolog_breaker_moves_total", "to" => "closed").increment(1);
    Ok(())
}

async fn failed(
    tx: &mut Tenant,
    route: Route<'_>,
    is_probe: bool,
    t: DateTime<Utc>,
) -> Result<(), StepError> {
    let org_id = tx.org_id();
    let opened: Option<i32> = sqlx::query_scalar(include_str!("../../sql/gate_breaker_open.sql"))
        .bind(org_id)
        .bind(route.host)
        .bind(t)
        .bind(WINDOW_MS)
        .bind(CALLS_MAX)
        .bind(CALLS_MIN)
        .bind(is_probe)
        .bind(route.compensation_fn)
        .fetch_optional(tx.conn())
        .await?;
    if let Some(count) = opened {
        metrics::counter!("undolog_breaker_moves_total", "to" => "open").increment(1);
        let Route { compensation_fn, host } = route;
        tracing::warn!(
            org.id = %org_id, compensation = compensation_fn, host, count,
            "most calls fail; the route gets a pause"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_five_minutes() {
        let pauses: Vec<i64> = (1..=6).map(|n| pause_ms(n) / 1000).collect();
        assert_eq!(pauses, [30, 60, 120, 240, 300, 300]);
        assert_eq!(pause_ms(i32::MAX), OPEN_MS_MAX);
    }
}
