//! The brake: when too many sessions of an organisation run out at once, the fault is more likely a
//! network's or ours than that many agents'. Nothing is undone until it has been looked at, or has
//! lasted for one more lease; then it goes on slowly.

use chrono::{DateTime, Duration, Utc};
use sqlx::FromRow;
use undolog_core::limits::{BRAKE_MIN, BRAKE_PERCENT};
use uuid::Uuid;

use crate::{error::StepError, pool::Store, tenant::Tenant};

/// Sessions that one run fails at most while the brake limits the rate.
const LIMITED_PER_RUN_MAX: i64 = 20;

/// The states of a brake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrakeState {
    /// Not pulled.
    Released,
    /// Nothing fails until its hold ends.
    Raised,
    /// Sessions fail at a limited rate.
    Limited,
    /// An operator stopped it: nothing fails.
    Stopped,
    /// An operator forced it: everything that is lost fails.
    Forced,
}

impl BrakeState {
    /// Whether it keeps lost sessions from failing.
    #[must_use]
    pub const fn holds(self) -> bool {
        matches!(self, Self::Raised | Self::Stopped)
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Raised => "raised",
            Self::Limited => "limited",
            Self::Stopped => "stopped",
            Self::Forced => "forced",
        }
    }

    fn from_column(text: &str) -> Self {
        [Self::Raised, Self::Limited, Self::Stopped, Self::Forced]
            .into_iter()
            .find(|state| state.as_str() == text)
            .unwrap_or(Self::Released)
    }
}

/// What the brake knows when it decides.
#[derive(Debug, Clone, Copy)]
pub struct Brake {
    /// Its state.
    pub state: BrakeState,
    /// When it was raised.
    pub raised_at: DateTime<Utc>,
    /// Nothing fails before.
    pub hold_until: DateTime<Utc>,
    /// When a session failed last at the limited rate.
    pub last_failed_at: Option<DateTime<Utc>>,
}

/// How many sessions may fail now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// So many.
    pub sessions: usize,
    /// The brake after this decision.
    pub state: BrakeState,
}

/// The numbers of one look.
#[derive(Debug, Clone, Copy, FromRow)]
struct Counts {
    failed: i64,
    live: i64,
}

#[derive(FromRow)]
struct Row {
    state: String,
    raised_at: DateTime<Utc>,
    hold_until: DateTime<Utc>,
    last_failed_at: Option<DateTime<Utc>>,
}

/// Decides how many of an organisation's lost sessions may fail now, and records the decision.
/// `window_ms` is the longest lease among them.
///
/// # Errors
/// The database could not be reached.
pub async fn brake(
    store: &Store,
    org_id: Uuid,
    lost: usize,
    window_ms: Option<i64>,
) -> Result<Allowance, StepError> {
    let mut tx = Tenant::begin(store, org_id).await?;
    let t: DateTime<Utc> =
        sqlx::query_scalar("SELECT clock_timestamp()").fetch_one(tx.conn()).await?;
    let row: Option<Row> = sqlx::query_as(
        "SELECT state, raised_at, hold_until, last_failed_at FROM undolog_brakes \
         WHERE org_id = $1 FOR NO KEY UPDATE",
    )
    .bind(org_id)
    .fetch_optional(tx.conn())
    .await?;
    let before = row.map_or(
        Brake { state: BrakeState::Released, raised_at: t, hold_until: t, last_failed_at: None },
        |row| Brake {
            state: BrakeState::from_column(&row.state),
            raised_at: row.raised_at,
            hold_until: row.hold_until,
            last_failed_at: row.last_failed_at,
        },
    );
    let window = Duration::milliseconds(window_ms.unwrap_or(0));
    let counts = match window_ms {
        Some(window_ms) => counts(&mut tx, org_id, window_ms).await?,
        None => Counts { failed: 0, live: 0 },
    };
    let lost_now = i64::try_from(lost).unwrap_or(i64::MAX);
    let (after, allowed) = decide(&before, lost_now, counts, window, t);
    if changed(&before, &after) {
        save(&mut tx, org_id, &after, lost_now, counts.live).await?;
    }
    tx.commit().await?;
    announce(org_id, before.state, after.state, lost, counts);
    let sessions = usize::try_from(allowed).unwrap_or(usize::MAX).min(lost);
    Ok(Allowance { sessions, state: after.state })
}

async fn counts(tx: &mut Tenant, org_id: Uuid, window_ms: i64) -> Result<Counts, StepError> {
    Ok(sqlx::query_as(include_str!("../../sql/brake_counts.sql"))
        .bind(org_id)
        .bind(window_ms)
        .fetch_one(tx.conn())
        .await?)
}

fn changed(before: &Brake, after: &Brake) -> bool {
    before.state != after.state || before.last_failed_at != after.last_failed_at
}

async fn save(
    tx: &mut Tenant,
    org_id: Uuid,
    brake: &Brake,
    expired: i64,
    live: i64,
) -> Result<(), StepError> {
    sqlx::query(include_str!("../../sql/brake_save.sql"))
        .bind(org_id)
        .bind(brake.state.as_str())
        .bind(i32::try_from(expired).unwrap_or(i32::MAX))
        .bind(i32::try_from(live).unwrap_or(i32::MAX))
        .bind(brake.raised_at)
        .bind(brake.hold_until)
        .bind(brake.last_failed_at)
        .execute(tx.conn())
        .await?;
    Ok(())
}

fn announce(org_id: Uuid, before: BrakeState, after: BrakeState, lost: usize, counts: Counts) {
    if before == after {
        return;
    }
    if after == BrakeState::Raised {
        metrics::counter!("undolog_mass_expiry_total").increment(1);
        let (failed, live) = (counts.failed, counts.live);
        tracing::error!(
            org.id = %org_id, lost, failed, live,
            "MASS_EXPIRY: too many sessions ran out at once; none is failed for one more lease"
        );
    } else {
        tracing::warn!(org.id = %org_id, lost, state = after.as_str(), "the brake changed");
    }
}

/// Nothing was lost for so long that the brake belongs to an earlier event: the next one is held
/// from its own beginning.
fn is_stale(brake: &Brake, window: Duration, t: DateTime<Utc>) -> bool {
    let since = match brake.state {
        BrakeState::Raised => brake.hold_until,
        BrakeState::Limited => brake.last_failed_at.unwrap_or(brake.hold_until),
        BrakeState::Released | BrakeState::Stopped | BrakeState::Forced => return false,
    };
    t > since + window
}

/// The decision: the brake afterwards, and how many sessions may fail.
fn decide(
    brake: &Brake,
    lost: i64,
    counts: Counts,
    window: Duration,
    t: DateTime<Utc>,
) -> (Brake, i64) {
    let threshold = i64::from(BRAKE_MIN).max(counts.live * i64::from(BRAKE_PERCENT) / 100);
    let is_mass = lost.saturating_add(counts.failed) > threshold && crate::guard!("sweep.brake");
    let released = Brake { state: BrakeState::Released, ..*brake };
    let brake = if is_stale(brake, window, t) { &released } else { brake };
    match brake.state {
        BrakeState::Stopped => (*brake, 0),
        BrakeState::Forced => (*brake, lost),
        BrakeState::Released if is_mass => {
            let hold_until = t + window;
            let state = BrakeState::Raised;
            (Brake { state, raised_at: t, hold_until, last_failed_at: None }, 0)
        }
        BrakeState::Released => (*brake, lost),
        _ if lost == 0 => (released, 0),
        BrakeState::Raised if t < brake.hold_until => (*brake, 0),
        BrakeState::Raised if !is_mass => (released, lost),
        // One window's threshold is spread evenly over a window.
        BrakeState::Raised | BrakeState::Limited => {
            let pace_ms = (window.num_milliseconds() / threshold).max(1);
            let since_ms = brake.last_failed_at.map_or(pace_ms, |at| (t - at).num_milliseconds());
            let allowed = (since_ms / pace_ms).clamp(0, LIMITED_PER_RUN_MAX);
            let last_failed_at = if allowed > 0 { Some(t) } else { brake.last_failed_at };
            (Brake { state: BrakeState::Limited, last_failed_at, ..*brake }, allowed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_700_000_000 + seconds, 0).expect("a time")
    }

    fn brake(state: BrakeState) -> Brake {
        Brake { state, raised_at: at(0), hold_until: at(300), last_failed_at: None }
    }

    fn look(brake: &Brake, lost: i64, failed: i64, live: i64, now: i64) -> (Brake, i64) {
        decide(brake, lost, Counts { failed, live }, Duration::seconds(300), at(now))
    }

    #[test]
    fn it_is_raised_above_twenty_and_above_a_tenth() {
        let released = brake(BrakeState::Released);
        for (lost, failed, live, allowed) in [
            (20, 0, 50, 20),
            (21, 0, 50, 0),
            (11, 10, 50, 0),
            (100, 0, 1000, 100),
            (101, 0, 1000, 0),
            (1, 100, 1000, 0),
            (0, 0, 0, 0),
        ] {
            let (after, got) = look(&released, lost, failed, live, 0);
            assert_eq!(got, allowed, "{lost} lost, {failed} failed, {live} live");
            let raised = lost + failed > 20.max(live / 10);
            assert_eq!(after.state == BrakeState::Raised, raised);
        }
    }

    #[test]
    fn it_holds_for_one_lease_and_then_limits_the_rate() {
        let (raised, _) = look(&brake(BrakeState::Released), 30, 0, 50, 0);
        assert_eq!((raised.state, raised.hold_until), (BrakeState::Raised, at(300)));
        assert_eq!(look(&raised, 30, 0, 50, 299).1, 0);
        let (limited, allowed) = look(&raised, 30, 0, 50, 300);
        assert_eq!((limited.state, allowed), (BrakeState::Limited, 1));
        // 20 in 300 s: one in 15 s.
        assert_eq!(look(&limited, 29, 1, 50, 314).1, 0);
        assert_eq!(look(&limited, 29, 1, 50, 315).1, 1);
        assert_eq!(look(&limited, 29, 1, 50, 599).1, 19, "never all at once");
        let (again, allowed) = look(&limited, 29, 0, 50, 300 + 3600);
        assert_eq!((again.state, allowed), (BrakeState::Raised, 0), "another event, another hold");
        assert_eq!(look(&limited, 0, 1, 50, 320).0.state, BrakeState::Released);
    }

    #[test]
    fn agents_that_come_back_release_it() {
        let raised = brake(BrakeState::Raised);
        assert_eq!(look(&raised, 0, 0, 50, 10).0.state, BrakeState::Released);
        let (after, allowed) = look(&raised, 3, 0, 50, 301);
        assert_eq!((after.state, allowed), (BrakeState::Released, 3));
    }

    #[test]
    fn an_operator_s_word_stands() {
        assert_eq!(look(&brake(BrakeState::Stopped), 5, 0, 50, 900).1, 0);
        let (after, allowed) = look(&brake(BrakeState::Forced), 500, 0, 600, 0);
        assert_eq!((after.state, allowed), (BrakeState::Forced, 500));
    }
}
