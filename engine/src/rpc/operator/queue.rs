//! The queue as it stands, which every verb about it answers.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::{
    Caller,
    operate::{BreakerRow, PauseRow, QueueStatus, queue_status},
};

use crate::{
    call::Engine,
    convert::{count, timestamp},
};

pub(super) async fn status(
    engine: &Arc<Engine>,
    caller: Caller,
    page_token: String,
) -> Result<v1::QueueStatus, Status> {
    let store = engine.store.clone();
    let reading = async move { queue_status(&store, &caller, &page_token).await };
    Ok(shown(engine.read(reading).await?))
}

fn shown(status: QueueStatus) -> v1::QueueStatus {
    let many = |number: i64| u64::try_from(number).unwrap_or_default();
    v1::QueueStatus {
        due: many(status.due),
        oldest_due_age_ms: many(status.oldest_due_age_ms),
        running: many(status.running),
        waiting: many(status.waiting),
        halted: many(status.halted),
        dead_letters_open: many(status.dead_letters_open),
        unknown: many(status.unknown),
        approvals_pending: many(status.approvals_pending),
        pauses: status.pauses.into_iter().map(pause).collect(),
        breakers: status.breakers.into_iter().map(breaker).collect(),
        paused_everywhere: status.paused_everywhere,
        brake_state: status.brake_state,
        brake_hold_until: status.brake_hold_until.map(timestamp),
        notifications_pending: many(status.notifications_pending),
        next_page_token: status.next_token,
    }
}

fn pause(row: PauseRow) -> v1::Pause {
    v1::Pause {
        compensation_fn: row.compensation_fn,
        paused_at: Some(timestamp(row.paused_at)),
        paused_by: row.paused_by,
        reason: row.reason,
    }
}

fn breaker(row: BreakerRow) -> v1::Breaker {
    v1::Breaker {
        compensation_fn: row.compensation_fn,
        host: row.host,
        state: row.state,
        calls: count(row.calls),
        failures: count(row.failures),
        opened_at: row.opened_at.map(timestamp),
    }
}
