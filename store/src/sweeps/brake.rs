//! The brake: when too many sessions of an organisation run out at once, the fault is more likely a
//! network's or ours than that many agents'. Nothing is undone until it has been looked at, or has
//! lasted for one more lease; then it goes on slowly.

use std::collections::{BTreeMap, BTreeSet};

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

    /// Whether an operator's word stands.
    const fn is_operators(self) -> bool {
        matches!(self, Self::Stopped | Self::Forced)
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowance {
    /// So many of the classes that are held.
    pub sessions: i64,
    /// The classes of leases that are held; the others go on as they like.
    pub held: BTreeSet<i64>,
    /// The brake after this decision.
    pub state: BrakeState,
}

impl Allowance {
    /// May one more session of this class fail?
    pub(super) fn allows(&self, class: i64) -> bool {
        match self.state {
            BrakeState::Stopped => false,
            BrakeState::Forced => true,
            _ => self.sessions > 0 || !self.held.contains(&class),
        }
    }

    /// One did.
    pub(super) fn took(&mut self, class: i64) {
        if self.held.contains(&class) {
            self.sessions -= 1;
        }
    }
}

/// The numbers of one look.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    failed: i64,
    live: i64,
}

impl Counts {
    fn threshold(self) -> i64 {
        i64::from(BRAKE_MIN).max(self.live * i64::from(BRAKE_PERCENT) / 100)
    }

    fn is_mass(self, lost: i64) -> bool {
        lost.saturating_add(self.failed) > self.threshold() && crate::guard!("sweep.brake")
    }
}

#[derive(FromRow)]
struct Row {
    state: String,
    raised_at: DateTime<Utc>,
    hold_until: DateTime<Utc>,
    last_failed_at: Option<DateTime<Utc>>,
    classes: Vec<i64>,
}

/// Whether an operator has stopped the brake meanwhile.
pub(super) async fn is_stopped(store: &Store, org_id: Uuid) -> Result<bool, StepError> {
    let mut tx = Tenant::begin(store, org_id).await?;
    let is_stopped = sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM undolog_brakes WHERE org_id = $1 AND state = 'stopped')",
    )
    .bind(org_id)
    .fetch_one(tx.conn())
    .await?;
    tx.commit().await?;
    Ok(is_stopped)
}

/// Decides how many of an organisation's lost sessions may fail now, and records the decision.
/// Leases of about one length are judged together, over a time of that length: `lost` is how many
/// of each class are lost.
///
/// # Errors
/// The database could not be reached.
pub async fn brake(
    store: &Store,
    org_id: Uuid,
    lost: &BTreeMap<i64, i64>,
) -> Result<Allowance, StepError> {
    let mut tx = Tenant::begin(store, org_id).await?;
    let t: DateTime<Utc> =
        sqlx::query_scalar("SELECT clock_timestamp()").fetch_one(tx.conn()).await?;
    let row: Option<Row> = sqlx::query_as(
        "SELECT state, raised_at, hold_until, last_failed_at, classes FROM undolog_brakes \
         WHERE org_id = $1 FOR NO KEY UPDATE",
    )
    .bind(org_id)
    .fetch_optional(tx.conn())
    .await?;
    let mut before =
        Brake { state: BrakeState::Released, raised_at: t, hold_until: t, last_failed_at: None };
    let mut held = BTreeSet::new();
    if let Some(row) = row {
        let state = BrakeState::from_column(&row.state);
        let Row { raised_at, hold_until, last_failed_at, classes, .. } = row;
        before = Brake { state, raised_at, hold_until, last_failed_at };
        held.extend(classes);
    }
    let before_classes = held.clone();
    let counts = counts(&mut tx, org_id, lost, &held).await?;
    let lost_of = |class: &i64| lost.get(class).copied().unwrap_or(0);
    held.extend(
        counts.iter().filter(|(class, c)| c.is_mass(lost_of(class))).map(|(class, _)| *class),
    );
    let (mut lost_now, mut sum) = (0_i64, Counts::default());
    for class in &held {
        let Counts { failed, live } = counts.get(class).copied().unwrap_or_default();
        lost_now = lost_now.saturating_add(lost_of(class));
        sum = Counts { failed: sum.failed + failed, live: sum.live + live };
    }
    let window = Duration::milliseconds(held.last().copied().unwrap_or(0));
    let (after, allowed) = decide(&before, lost_now, sum, window, t);
    if after.state == BrakeState::Released {
        held.clear();
    }
    if changed(&before, &after) || (held != before_classes && !before.state.is_operators()) {
        save(&mut tx, org_id, &after, lost_now, sum.live, &held).await?;
    }
    tx.commit().await?;
    announce(org_id, before.state, after.state, lost_now, sum);
    Ok(Allowance { sessions: allowed, held, state: after.state })
}

/// The numbers of each class that is lost or held.
async fn counts(
    tx: &mut Tenant,
    org_id: Uuid,
    lost: &BTreeMap<i64, i64>,
    held: &BTreeSet<i64>,
) -> Result<BTreeMap<i64, Counts>, StepError> {
    let classes: BTreeSet<i64> = lost.keys().chain(held).copied().collect();
    let lost: Vec<i64> =
        classes.iter().map(|class| lost.get(class).copied().unwrap_or(0)).collect();
    let rows: Vec<(i64, i64, i64)> = sqlx::query_as(include_str!("../../sql/brake_counts.sql"))
        .bind(org_id)
        .bind(classes.into_iter().collect::<Vec<_>>())
        .bind(lost)
        .fetch_all(tx.conn())
        .await?;
    Ok(rows.into_iter().map(|(class, failed, live)| (class, Counts { failed, live })).collect())
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
    classes: &BTreeSet<i64>,
) -> Result<(), StepError> {
    sqlx::query(include_str!("../../sql/brake_save.sql"))
        .bind(org_id)
        .bind(brake.state.as_str())
        .bind(i32::try_from(expired).unwrap_or(i32::MAX))
        .bind(i32::try_from(live).unwrap_or(i32::MAX))
        .bind(brake.raised_at)
        .bind(brake.hold_until)
        .bind(brake.last_failed_at)
        .bind(classes.iter().copied().collect::<Vec<_>>())
        .execute(tx.conn())
        .await?;
    Ok(())
}

fn announce(org_id: Uuid, before: BrakeState, after: BrakeState, lost: i64, counts: Counts) {
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
    let (threshold, is_mass) = (counts.threshold(), counts.is_mass(lost));
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
