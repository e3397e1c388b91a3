//! What a ticket leads to. A handler always answers Ok: what has to be done again stands in our own
//! rows, never in the queue's.

use std::{sync::Arc, time::Duration};

use apalis::prelude::Data;
use serde_json::Value;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use undolog_store::{Store, crash_point, sweeps::Schedule};
use uuid::Uuid;

use crate::{
    egress::Egress,
    fair::Fair,
    lane::Lane,
    notify,
    options::WorkerOptions,
    probe::Probing,
    snapshot::Snapshots,
    sweep::{self, Kinds},
    wake::Wakes,
    walk,
};

/// What all handlers of a process share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: WorkerOptions,
    /// For the work itself.
    pub(crate) store: Store,
    /// For the queue, the timer and the renewal of leases.
    pub(crate) queue_store: Store,
    pub(crate) egress: Egress,
    /// Where calls wait that need a process of their own.
    pub(crate) lane: Lane,
    /// Whoever waits for tickets to be announced.
    pub(crate) wakes: Wakes,
    /// The sweeps that run.
    pub(crate) sweeping: Kinds,
    /// The organisations whose unknown calls are asked about.
    pub(crate) probing: Probing,
    /// The sessions whose snapshots are to be written.
    pub(crate) snapshots: Snapshots,
    /// What goes on beside the handlers, and is waited for at the end.
    pub(crate) tasks: TaskTracker,
    pub(crate) fair: Fair,
    /// One name per start of a process: a name that came back would make orphans look alive.
    pub(crate) name: String,
    /// Nothing new is begun.
    pub(crate) stop: CancellationToken,
    /// What still runs is handed back.
    pub(crate) give_up: CancellationToken,
}

/// How long a stopped process waits for its connections to say goodbye.
const CLOSE: Duration = Duration::from_secs(1);

impl Shared {
    /// Closes the connections, so that whoever stops the database next finds none of ours.
    pub(crate) async fn close(&self) {
        let closed = async { tokio::join!(self.store.close(), self.queue_store.close()) };
        if tokio::time::timeout(CLOSE, closed).await.is_err() {
            tracing::debug!(worker = self.name, "connections are left to the system");
        }
    }
}

/// A ticket that this build understands.
#[derive(Debug, PartialEq, Eq)]
enum Ticket {
    Rollback { org_id: Uuid, rollback_id: Uuid },
    Schedule { schedule: Schedule, slot: i64 },
    Notification { org_id: Uuid },
    Snapshot { org_id: Uuid, session_id: Uuid },
}

impl Ticket {
    fn parse(job: &Value) -> Option<Self> {
        let text = |key: &str| job.get(key).and_then(Value::as_str);
        match text("kind")? {
            "rollback" => Some(Self::Rollback {
                org_id: text("org")?.parse().ok()?,
                rollback_id: text("subject")?.parse().ok()?,
            }),
            "schedule" => Some(Self::Schedule {
                schedule: text("subject")?.parse().ok()?,
                slot: job.get("slot").and_then(Value::as_i64)?,
            }),
            "notification" => Some(Self::Notification { org_id: text("subject")?.parse().ok()? }),
            "snapshot" => Some(Self::Snapshot {
                org_id: text("org")?.parse().ok()?,
                session_id: text("subject")?.parse().ok()?,
            }),
            _ => None,
        }
    }
}

/// Handles one ticket in a task of its own: the queue library polls all handlers in one task, and a
/// panic there would take its loop along.
pub(crate) async fn handle(job: Value, shared: Data<Arc<Shared>>) {
    let shared = Arc::clone(&shared);
    let Some(ticket) = Ticket::parse(&job) else {
        metrics::counter!("undolog_tickets_total", "kind" => "undecodable").increment(1);
        tracing::error!("a ticket cannot be read; it is dropped");
        return;
    };
    let task = tokio::spawn(async move {
        match ticket {
            Ticket::Rollback { org_id, rollback_id } => {
                metrics::counter!("undolog_tickets_total", "kind" => "rollback").increment(1);
                walk::run(&shared, org_id, rollback_id).await;
            }
            Ticket::Schedule { schedule, slot } => {
                metrics::counter!("undolog_tickets_total", "kind" => "schedule").increment(1);
                sweep::run(&shared, schedule, slot).await;
            }
            Ticket::Notification { org_id } => {
                metrics::counter!("undolog_tickets_total", "kind" => "notification").increment(1);
                notify::run(&shared, org_id).await;
            }
            Ticket::Snapshot { org_id, session_id } => {
                metrics::counter!("undolog_tickets_total", "kind" => "snapshot").increment(1);
                shared.snapshots.ask(&shared, org_id, session_id);
            }
        }
    });
    if let Err(error) = task.await {
        metrics::counter!("undolog_handler_panics_total").increment(1);
        tracing::error!(%error, "a handler ended without an answer");
    }
    crash_point!("worker.before_ack");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tickets_are_read_and_foreign_ones_are_not() {
        let (org_id, rollback_id) = (Uuid::now_v7(), Uuid::now_v7());
        let job = json!({"kind": "rollback", "subject": rollback_id, "org": org_id});
        assert_eq!(Ticket::parse(&job), Some(Ticket::Rollback { org_id, rollback_id }));
        let job = json!({"kind": "schedule", "subject": "reaper", "slot": 7});
        let expected = Ticket::Schedule { schedule: Schedule::Reaper, slot: 7 };
        assert_eq!(Ticket::parse(&job), Some(expected));
        for foreign in [
            json!(null),
            json!("text"),
            json!({"kind": "rollback", "subject": "x", "org": org_id}),
            json!({"kind": "rollback", "subject": rollback_id}),
            json!({"kind": "schedule", "subject": "unknown", "slot": 7}),
            json!({"kind": "notification", "subject": 1}),
            json!({"kind": "snapshot", "subject": rollback_id}),
            json!({"kind": "other"}),
            json!([1, 2]),
        ] {
            assert_eq!(Ticket::parse(&foreign), None, "{foreign}");
        }
    }
}
