//! Sweeps: what nobody asks for. Each one looks for what is over by the database's clock, over all
//! organisations through the payload-free view, and settles it organisation by organisation. They
//! are bounded, idempotent and may overlap.

mod approvals;
mod brake;
mod cleanup;
mod grants;
mod idle;
mod notifications;
mod reaper;
mod schedule;
mod sessions;

use uuid::Uuid;

pub use approvals::{approvals, lapses};
pub use brake::{Allowance, Brake, BrakeState, brake};
pub use cleanup::cleanup;
pub use grants::{LoseGrants, grants};
pub use idle::{EndIdle, idle};
pub use notifications::notifications;
pub use reaper::reaper;
pub use schedule::{Schedule, claim_slot, enqueue_due};
pub use sessions::{FailLost, Verdict, sessions};

use crate::{error::StepError, pool::Store};

/// Who acts when a lease has run out.
pub const ACTOR: &str = "system:lease";
/// Rows that one run of a sweep handles per organisation; the rest is for the next run.
const ROWS_PER_RUN_MAX: i64 = 1000;

/// What one run did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// What was settled.
    pub settled: u64,
    /// What was left for later on purpose (a brake holds) or because of an error.
    pub left: u64,
}

impl Swept {
    fn add(&mut self, other: Self) {
        self.settled += other.settled;
        self.left += other.left;
    }
}

/// Runs a schedule's sweep.
///
/// # Errors
/// The database could not be reached.
pub async fn run(store: &Store, schedule: Schedule) -> Result<Swept, StepError> {
    match schedule {
        Schedule::Reaper => reaper(store).await,
        Schedule::Grants => grants(store).await,
        Schedule::Sessions => sessions(store).await,
        Schedule::Idle => idle(store).await,
        Schedule::Approvals => approvals(store).await,
        Schedule::Lapses => lapses(store).await,
        // A worker asks, since it has the way out; nothing is left to do here.
        Schedule::Probes => Ok(Swept::default()),
        Schedule::Notifications => notifications(store).await,
        Schedule::Cleanup => cleanup(store).await,
    }
}

/// Organisations that may have something of this kind due for at least this long.
pub(crate) async fn due_orgs(
    store: &Store,
    kind: &str,
    age_ms: i64,
) -> Result<Vec<Uuid>, StepError> {
    Ok(sqlx::query_scalar(include_str!("../../sql/sweep_due_orgs.sql"))
        .bind(kind)
        .bind(age_ms)
        .fetch_all(store.pool())
        .await?)
}

/// An error in one organisation's work must not stop the others': it is logged and counted.
fn left(sweep: &'static str, org_id: Uuid, error: &StepError) -> Swept {
    tracing::warn!(sweep, org.id = %org_id, %error, "a sweep could not settle something");
    metrics::counter!("undolog_sweep_errors_total", "sweep" => sweep).increment(1);
    Swept { settled: 0, left: 1 }
}
