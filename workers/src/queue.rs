//! The queue library: its monitor runs every handler, its storage hands out the tickets. It is
//! started again whenever it ends before it should, each time under a new name.

use std::{io, sync::Arc, time::Duration};

use apalis::{
    layers::WorkerBuilderExt as _,
    prelude::{Event, Monitor, Worker, WorkerBuilder, WorkerFactoryFn as _},
};
use apalis_sql::{Config, postgres::PostgresStorage};
use undolog_store::{
    quiet::Quiet,
    sweeps::Schedule,
    ticket::{QUEUE_MAINTENANCE, QUEUE_NOTIFICATION, QUEUE_ROLLBACK},
};
use uuid::Uuid;

use crate::{
    handler::{Shared, handle},
    wake::{self, Woken},
    walk::random_below,
};

/// The first and the longest pause before the monitor is started again.
const RESTART: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// Tickets that are fetched ahead: few, since a fetched one is hidden from the other workers.
const FETCHED_AHEAD: usize = 4;
/// Sweeps that run at the same time: one of each kind, so that none takes another's place, and one
/// handler more for what ends at once.
const SWEEPS: usize = Schedule::ALL.len() + 1;
/// Organisations whose notifications are sent at the same time.
const NOTIFIERS: usize = 8;
/// How often the library says that this worker lives, and after how long it takes others for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
const DEAD_AFTER: Duration = Duration::from_secs(120);

static SAID: Quiet = Quiet::new();

/// Runs the monitor until the process stops.
pub(crate) async fn supervise(shared: Arc<Shared>) {
    let listener = tokio::spawn(wake::listen(Arc::clone(&shared)));
    let mut pause = RESTART.0;
    while !shared.stop.is_cancelled() {
        let run = tokio::spawn(monitor(Arc::clone(&shared)));
        match run.await {
            Ok(()) if shared.stop.is_cancelled() => break,
            Ok(()) => tracing::error!("the queue's monitor ended; it is started again"),
            Err(error) => tracing::error!(%error, "the queue's monitor died; it is started again"),
        }
        metrics::counter!("undolog_queue_restarts_total").increment(1);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shared.stop.cancelled() => break,
        }
        pause = (pause * 2).min(RESTART.1);
    }
    listener.abort();
}

async fn monitor(shared: Arc<Shared>) {
    let name = format!("{}-{}", shared.name, Uuid::new_v4().simple());
    let stop = shared.stop.clone();
    let give_up = shared.give_up.clone();
    let monitor = Monitor::new()
        .register(
            WorkerBuilder::new(format!("{name}-rollback"))
                .data(Arc::clone(&shared))
                .concurrency(shared.fair.handlers())
                .backend(backend(&shared, QUEUE_ROLLBACK))
                .build_fn(handle),
        )
        .register(
            WorkerBuilder::new(format!("{name}-maintenance"))
                .data(Arc::clone(&shared))
                .concurrency(SWEEPS)
                .backend(backend(&shared, QUEUE_MAINTENANCE))
                .build_fn(handle),
        )
        .register(
            WorkerBuilder::new(format!("{name}-notification"))
                .data(Arc::clone(&shared))
                .concurrency(NOTIFIERS)
                .backend(backend(&shared, QUEUE_NOTIFICATION))
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
}

/// A queue as the library polls it, and as it is woken by announcements.
fn backend(shared: &Shared, queue: &'static str) -> Woken {
    // Workers that start together should not all poll together.
    let poll_ms = shared.options.poll_interval_ms.max(10);
    let poll = Duration::from_millis(poll_ms + random_below(poll_ms / 5 + 1));
    let config = Config::new(queue)
        .set_poll_interval(poll)
        .set_buffer_size(FETCHED_AHEAD)
        .set_keep_alive(KEEP_ALIVE)
        .set_reenqueue_orphaned_after(DEAD_AFTER);
    let store = shared.queue_store.clone();
    Woken {
        storage: PostgresStorage::new_with_config(store.pool().clone(), config),
        queue,
        fetched_ahead: FETCHED_AHEAD,
        store,
        wakes: shared.wakes.clone(),
    }
}

fn log(event: Worker<Event>) {
    match event.inner() {
        Event::Error(error) => {
            metrics::counter!("undolog_queue_errors_total").increment(1);
            if let Some(kept_back) = SAID.may_say(&error.to_string()) {
                let worker = event.id();
                tracing::warn!(%worker, %error, kept_back, "the queue reports an error");
            }
        }
        other => tracing::trace!(worker = %event.id(), event = ?other, "queue"),
    }
}
