//! Wakes the queues when a ticket is announced, however often the connection that hears it is lost.
//! The library's own listener ends for good with its first error, and the queues are only polled
//! from then on; so the library polls, and what is announced is fetched here beside it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use apalis::prelude::{Backend, Context, Event, Poller, Request, Worker};
use apalis_sql::{context::SqlContext, postgres::PostgresStorage};
use futures::{
    StreamExt as _,
    channel::mpsc,
    future,
    stream::{self, BoxStream},
};
use serde_json::Value;
use tokio::sync::Notify;
use undolog_store::{
    StepError, Store,
    announced::{Announced, TICKETS},
    guard, ticket,
};

use crate::handler::Shared;

/// How long to wait before listening again after a connection was lost; doubled each time.
const AGAIN_AFTER: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(15));

/// Who waits for announcements, by queue.
#[derive(Debug, Clone)]
pub(crate) struct Wakes(Arc<HashMap<&'static str, Notify>>);

impl Default for Wakes {
    fn default() -> Self {
        let queues = ticket::QUEUES.into_iter().map(|queue| (queue, Notify::new()));
        Self(Arc::new(queues.collect()))
    }
}

impl Wakes {
    fn wake(&self, queue: &str) {
        if let Some(waits) = self.0.get(queue) {
            waits.notify_one();
        }
    }

    /// What was announced while nobody listened is not told again.
    fn wake_all(&self) {
        self.0.values().for_each(Notify::notify_one);
    }

    /// Waits until a ticket of the queue is announced.
    async fn ticket(&self, queue: &str) {
        match self.0.get(queue) {
            Some(waits) => waits.notified().await,
            None => future::pending().await,
        }
    }
}

/// Listens until the process stops.
pub(crate) async fn listen(shared: Arc<Shared>) {
    let mut pause = AGAIN_AFTER.0;
    loop {
        let (listened, error) = tokio::select! {
            () = shared.stop.cancelled() => return,
            ended = hear(&shared) => ended,
        };
        metrics::counter!("undolog_listen_failures_total").increment(1);
        tracing::warn!(%error, "tickets are not announced for a while; the queue is polled");
        if !guard!("queue.listen_again") {
            return;
        }
        pause = if listened { AGAIN_AFTER.0 } else { (pause * 2).min(AGAIN_AFTER.1) };
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Listens until the connection is lost. Was there one?
async fn hear(shared: &Shared) -> (bool, StepError) {
    let mut announced = match Announced::on(&shared.queue_store, TICKETS).await {
        Ok(announced) => announced,
        Err(error) => return (false, error),
    };
    shared.wakes.wake_all();
    loop {
        match announced.payload().await {
            Ok(queue) => shared.wakes.wake(&queue),
            Err(error) => return (true, error),
        }
    }
}

/// A queue of the library whose tickets are also fetched when they are announced.
pub(crate) struct Woken {
    pub(crate) storage: PostgresStorage<Value>,
    pub(crate) queue: &'static str,
    pub(crate) fetched_ahead: usize,
    pub(crate) store: Store,
    pub(crate) wakes: Wakes,
}

type Ticket = Request<Value, SqlContext>;
type Polled = PostgresStorage<Value>;

impl Backend<Ticket> for Woken {
    type Stream = BoxStream<'static, Result<Option<Ticket>, apalis::prelude::Error>>;
    type Layer = <Polled as Backend<Ticket>>::Layer;
    type Codec = <Polled as Backend<Ticket>>::Codec;

    fn poll(self, worker: &Worker<Context>) -> Poller<Self::Stream, Self::Layer> {
        let Self { storage, queue, fetched_ahead, store, wakes } = self;
        let polled = storage.poll(worker);
        let (tell, told) = mpsc::channel(fetched_ahead);
        let worker = worker.clone();
        let fetching = async move {
            let mut tell = tell;
            let most = i32::try_from(fetched_ahead).unwrap_or(i32::MAX);
            loop {
                wakes.ticket(queue).await;
                let id = worker.id().to_string();
                match ticket::fetch(&store, &id, queue, most).await {
                    Ok(tickets) => {
                        // A full batch can have left more.
                        if tickets.len() == fetched_ahead {
                            wakes.wake(queue);
                        }
                        for ticket in tickets {
                            if future::poll_fn(|cx| tell.poll_ready(cx)).await.is_err() {
                                return;
                            }
                            if tell.start_send(Ok(Some(ticket.req))).is_err() {
                                return;
                            }
                        }
                    }
                    Err(error) => {
                        worker.emit(Event::Error(Box::new(error)));
                    }
                }
            }
        };
        let heartbeat = polled.heartbeat;
        let both = async move {
            future::join(heartbeat, fetching).await;
        };
        let stream = stream::select(polled.stream, told).boxed();
        Poller::new_with_layer(stream, both, polled.layer)
    }
}
