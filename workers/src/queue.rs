//! The queue library: its monitor runs every handler, its storage hands out the tickets. It is
//! started again whenever it ends before it should, each time under a new name.

use std::{io, sync::Arc, time::Duration};

use apalis::{
    layers::WorkerBuilderExt as _,
    prelude::{Event, Monitor, Worker, WorkerBuilder, WorkerFactoryFn as _},
};
use apalis_sql::{
    Config,
    postgres::{PgListen, PostgresStorage},
};
use serde_json::Value;
use undolog_store::ticket::{QUEUE_MAINTENANCE, QUEUE_NOTIFICATION, QUEUE_ROLLBACK};
use uuid::Uuid;

use crate::{
    handler::{Shared, handle},
    walk::random_below,
};

/// The first and the longest pause before the monitor is started again.
const RESTART: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// Tickets that are fetched ahead: few, since a fetched one is hidden from the other workers.
const FETCHED_AHEAD: usize = 4;
/// Sweeps that run at the same time.
const SWEEPS: usize = 4;
/// Organisations whose notifications are sent at the same time.
const NOTIFIERS: usize = 8;
/// How often the library says that this worker lives, and after how long it takes others for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
const DEAD_AFTER: Duration = Duration::from_secs(120);

/// Runs the monitor until the process stops.
pub(crate) async fn supervise(shared: Arc<Shared>) {
    let mut pause = RESTART.0;
    while !shared.stop.is_cancelled() {
        let run = tokio::spawn(monitor(Arc::clone(&shared)));
        match run.await {
            Ok(()) if shared.stop.is_cancelled() => return,
            Ok(()) => tracing::error!("the queue's monitor ended; it is started again"),
            Err(error) => tracing::error!(%error, "the queue's monitor died; it is started again"),
        }
        metrics::counter!("undolog_queue_restarts_total").increment(1);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shared.stop.cancelled() => return,
        }
        pause = (pause * 2).min(RESTART.1);
    }
}

async fn monitor(shared: Arc<Shared>) {
    let name = format!("{}-{}", shared.name, Uuid::new_v4().simple());
    let mut rollbacks = storage(&shared, QUEUE_ROLLBACK);
    let mut maintenance = storage(&shared, QUEUE_MAINTENANCE);
    let mut notifications = storage(&shared, QUEUE_NOTIFICATION);
    let all = [&mut rollbacks, &mut maintenance, &mut notifications];
    let listener = listen(&shared, all).await;
    let stop = shared.stop.clone();
    let give_up = shared.give_up.clone();
    let monitor = Monitor::new()
        .register(
            WorkerBuilder::new(format!("{name}-rollback"))
                .data(Arc::clone(&shared))
                .concurrency(shared.options.concurrency.max(1))
                .backend(rollbacks)
                .build_fn(handle),
        )
        .register(
            WorkerBuilder::new(format!("{name}-maintenance"))
                .data(Arc::clone(&shared))
                .concurrency(SWEEPS)
                .backend(maintenance)
                .build_fn(handle),
        )
        .register(
            WorkerBuilder::new(format!("{name}-notification"))
                .data(Arc::clone(&shared))
                .concurrency(NOTIFIERS)
                .backend(notifications)
                .build_fn(handle),
        )
        // After the calls were told to give up, their reports are written; then nothing is waited
        // for any more.
        .with_terminator(async move {
            give_up.cancelled().await;
            tokio::time::sleep(Duration::from_secs(3)).await;
        })
        .on_event(log);
    let signal = async move {
        stop.cancelled().await;
        Ok::<(), io::Error>(())
    };
    if let Err(error) = monitor.run_with_signal(signal).await {
        tracing::error!(%error, "the queue's monitor failed");
    }
    if let Some(listener) = listener {
        listener.abort();
    }
}

fn storage(shared: &Shared, queue: &str) -> PostgresStorage<Value> {
    // Workers that start together should not all poll together.
    let poll_ms = shared.options.poll_interval_ms.max(10);
    let poll = Duration::from_millis(poll_ms + random_below(poll_ms / 5 + 1));
    let config = Config::new(queue)
        .set_poll_interval(poll)
        .set_buffer_size(FETCHED_AHEAD)
        .set_keep_alive(KEEP_ALIVE)
        .set_reenqueue_orphaned_after(DEAD_AFTER);
    PostgresStorage::new_with_config(shared.queue_store.pool().clone(), config)
}

/// Wakes the storages by notification. Without it they poll, which is only slower.
async fn listen(
    shared: &Shared,
    storages: [&mut PostgresStorage<Value>; 3],
) -> Option<tokio::task::JoinHandle<()>> {
    match PgListen::new(shared.queue_store.pool().clone()).await {
        Ok(mut listener) => {
            for storage in storages {
                listener.subscribe_with(storage);
            }
            Some(tokio::spawn(async move {
                if let Err(error) = listener.listen().await {
                    tracing::warn!(%error, "notifications are lost; the queue is polled");
                }
            }))
        }
        Err(error) => {
            tracing::warn!(%error, "no notifications; the queue is polled");
            None
        }
    }
}

fn log(event: Worker<Event>) {
    match event.inner() {
        Event::Error(error) => {
            metrics::counter!("undolog_queue_errors_total").increment(1);
            tracing::warn!(worker = %event.id(), %error, "the queue reports an error");
        }
        other => tracing::trace!(worker = %event.id(), event = ?other, "queue"),
    }
}
