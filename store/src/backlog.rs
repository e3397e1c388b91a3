//! Numbers for the worker's metrics: what rollbacks wait for, and what keeps the database from
//! removing dead rows. Each look reads a bounded number of rows.

use sqlx::Executor as _;
use undolog_core::limits::COUNTED_MAX;

use crate::{error::StepError, pool::Store};

/// What a rollback waits for that is not due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    /// A call of its session that is under way.
    Calls,
    /// What became of a call that nobody reported.
    Outcome,
    /// The end of a pause.
    Pause,
    /// Its function's limits.
    Limit,
    /// The breaker of its route.
    Breaker,
    /// The time of its next try.
    Retry,
    /// A free place in a worker, or another try of a step that failed.
    Worker,
}

impl WaitsFor {
    /// As the database has it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Outcome => "outcome",
            Self::Pause => "pause",
            Self::Limit => "limit",
            Self::Breaker => "breaker",
            Self::Retry => "retry",
            Self::Worker => "worker",
        }
    }
}

/// Everything that [`rollbacks`] can name.
pub const KINDS: [&str; 10] = [
    "due",
    "running",
    WaitsFor::Calls.as_str(),
    WaitsFor::Outcome.as_str(),
    WaitsFor::Pause.as_str(),
    WaitsFor::Limit.as_str(),
    WaitsFor::Breaker.as_str(),
    WaitsFor::Retry.as_str(),
    WaitsFor::Worker.as_str(),
    "other",
];

/// How many rollbacks of all organisations are due, are held by a worker, or wait, and for what. Of
/// a backlog the oldest 10,000 are counted.
///
/// # Errors
/// The database could not be reached.
pub async fn rollbacks(store: &Store) -> Result<Vec<(String, i64)>, StepError> {
    Ok(sqlx::query_as(include_str!("../sql/backlog.sql"))
        .bind(i64::from(COUNTED_MAX))
        .fetch_all(store.pool())
        .await?)
}

/// How long the oldest transaction has been open that keeps dead rows from being removed, in
/// seconds. Those of this process's login are always seen, those of others when it is a member of
/// `pg_monitor`.
///
/// # Errors
/// The database could not be reached.
pub async fn oldest_snapshot_seconds(store: &Store) -> Result<f64, StepError> {
    let mut tx = store.pool().begin().await?;
    // Whose sessions are shown goes with the role in force; ours is not the login.
    tx.execute("SET LOCAL ROLE NONE").await?;
    let seconds =
        sqlx::query_scalar(include_str!("../sql/oldest_snapshot.sql")).fetch_one(&mut *tx).await?;
    tx.rollback().await?;
    Ok(seconds)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::KINDS;

    #[test]
    fn the_database_takes_every_reason() {
        let sql = include_str!("../../migrations/0017_backlog.sql");
        let (_, list) = sql.split_once("CHECK (waits_for IN").expect("the constraint");
        let (list, _) = list.split_once("))").expect("its end");
        let taken: BTreeSet<&str> = list.split('\'').skip(1).step_by(2).collect();
        let named: BTreeSet<&str> =
            KINDS.into_iter().filter(|kind| !["due", "running", "other"].contains(kind)).collect();
        assert_eq!(taken, named);
    }
}
