//! Schedules: one row each, a slot claimed by one conditional UPDATE. Any process may issue the due
//! slot's ticket; of all that run it, one wins.

use std::str::FromStr;

use serde_json::json;

use crate::{
    error::StepError,
    pool::Store,
    ticket::{TicketKind, ticket_ids},
};

/// The sweeps. The table also has a row for partitions, which comes with its issue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Schedule {
    /// Issues missing tickets of due rollbacks.
    Reaper,
    /// Turns lost grants into unknown.
    Grants,
    /// Fails lost sessions.
    Sessions,
    /// Ends idle implicit sessions.
    Idle,
    /// Resolves approvals whose window is over.
    Approvals,
    /// Lets unused approvals lapse.
    Lapses,
    /// Asks about unknown calls.
    Probes,
    /// Issues missing tickets of notifications, and deletes old ones.
    Notifications,
    /// Deletes old tickets and workers of the queue.
    Cleanup,
}

impl Schedule {
    /// Every schedule.
    pub const ALL: [Self; 9] = [
        Self::Reaper,
        Self::Grants,
        Self::Sessions,
        Self::Idle,
        Self::Approvals,
        Self::Lapses,
        Self::Probes,
        Self::Notifications,
        Self::Cleanup,
    ];

    /// The name in its row and in its ticket.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reaper => "reaper",
            Self::Grants => "grants",
            Self::Sessions => "sessions",
            Self::Idle => "idle",
            Self::Approvals => "approvals",
            Self::Lapses => "lapses",
            Self::Probes => "probes",
            Self::Notifications => "notifications",
            Self::Cleanup => "cleanup",
        }
    }

    /// The length of its slots. Short ones bound how late something is noticed.
    #[must_use]
    pub const fn interval_ms(self) -> i64 {
        match self {
            Self::Approvals => 1_000,
            Self::Reaper | Self::Grants | Self::Sessions | Self::Probes | Self::Notifications => {
                5_000
            }
            Self::Idle | Self::Lapses | Self::Cleanup => 60_000,
        }
    }
}

impl FromStr for Schedule {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|schedule| schedule.as_str() == text).ok_or(())
    }
}

/// Issues a ticket for every schedule whose slot has not been run. Harmless from any number of
/// processes: they compute the same ids.
///
/// # Errors
/// The database could not be reached.
pub async fn enqueue_due(store: &Store) -> Result<u64, StepError> {
    let names: Vec<&str> = Schedule::ALL.iter().map(|s| s.as_str()).collect();
    let intervals: Vec<i64> = Schedule::ALL.iter().map(|s| s.interval_ms()).collect();
    let due: Vec<(String, i64)> = sqlx::query_as(include_str!("../../sql/schedules_due.sql"))
        .bind(names)
        .bind(intervals)
        .fetch_all(store.pool())
        .await?;
    let kind = TicketKind::Schedule;
    for (name, slot) in &due {
        sqlx::query("SELECT undolog_enqueue_one_of($1, $2, $3, clock_timestamp())")
            .bind(ticket_ids(kind, name))
            .bind(kind.queue())
            .bind(json!({"kind": kind.as_str(), "subject": name, "slot": slot}))
            .execute(store.pool())
            .await?;
    }
    Ok(due.len() as u64)
}

/// Claims a slot. `false`: it has been run, or a later one has.
///
/// # Errors
/// The database could not be reached.
pub async fn claim_slot(
    store: &Store,
    schedule: Schedule,
    slot: i64,
    worker: &str,
) -> Result<bool, StepError> {
    let done = sqlx::query(include_str!("../../sql/schedule_claim.sql"))
        .bind(schedule.as_str())
        .bind(slot)
        .bind(worker)
        .bind(schedule.interval_ms())
        .execute(store.pool())
        .await?;
    crate::crash_point!("sweep.after_slot_claim");
    Ok(done.rows_affected() == 1 || !crate::guard!("sweep.slot"))
}
