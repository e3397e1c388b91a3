//! A worker process, from its first connection to its last report.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use undolog_store::{
    StepError, Store, StoreOptions, catalog::CatalogError, readiness::Readiness, service,
};
use uuid::Uuid;

use crate::{
    egress::{Egress, EgressError},
    fair::Fair,
    gauges,
    handler::Shared,
    http,
    lane::Lane,
    options::WorkerOptions,
    probe::Probing,
    queue,
    snapshot::Snapshots,
    sweep::Kinds,
    timer,
    wake::Wakes,
};

/// Connections of the pool for the queue, the timer and renewals.
const QUEUE_CONNECTIONS: u32 = 4;
/// What a stop keeps back of its grace period to write the last reports.
const LAST_REPORTS_MS: u64 = 5_000;

/// Why a worker process cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum WorkersError {
    /// Postgres could not be reached.
    #[error(transparent)]
    Store(#[from] StepError),
    /// The role or the schema is unfit.
    #[error(transparent)]
    Unfit(#[from] CatalogError),
    /// The HTTP client could not be built.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// The HTTP face could not be opened.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        error: std::io::Error,
    },
}

/// A worker process that is connected and checked, and does nothing yet.
#[derive(Debug)]
pub struct Workers {
    shared: Arc<Shared>,
    listener: Option<TcpListener>,
}

impl Workers {
    /// Connects, checks role and schema, and opens the HTTP face.
    ///
    /// # Errors
    /// Whatever keeps the process from serving.
    pub async fn connect(options: WorkerOptions) -> Result<Self, WorkersError> {
        let store = Store::connect(&options.store).await?;
        let queue_options =
            StoreOptions { connections_max: QUEUE_CONNECTIONS, ..options.store.clone() };
        let queue_store = Store::connect(&queue_options).await?;
        service::check_runtime(&queue_store).await?;
        let egress = Egress::new(&options.egress)?;
        let listener = match options.http_listen {
            None => None,
            Some(address) => {
                let bound = TcpListener::bind(address).await;
                Some(bound.map_err(|error| WorkersError::Listen { address, error })?)
            }
        };
        let name = format!("{}-{}", options.name, Uuid::new_v4().simple());
        let fair = Fair::new(options.concurrency);
        let lane = Lane::new(options.concurrency);
        let shared = Shared {
            options,
            store,
            queue_store,
            egress,
            fair,
            lane,
            wakes: Wakes::default(),
            sweeping: Kinds::default(),
            probing: Probing::default(),
            snapshots: Snapshots::default(),
            tasks: TaskTracker::new(),
            name,
            stop: CancellationToken::new(),
            give_up: CancellationToken::new(),
        };
        Ok(Self { shared: Arc::new(shared), listener })
    }

    /// Where the HTTP face listens.
    #[must_use]
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.listener.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Works until `stop` is cancelled, then ends within the grace period: nothing new is begun,
    /// calls in flight are finished or handed back, leases are released.
    ///
    /// # Errors
    /// None after the start; the result is there for callers that have one error path.
    pub async fn serve(self, stop: CancellationToken) -> Result<(), WorkersError> {
        let Self { shared, listener } = self;
        let (pulse, readiness) = (timer::Pulse::default(), Readiness::default());
        let end = CancellationToken::new();
        let face = listener.map(|listener| {
            let (shared, pulse) = (Arc::clone(&shared), pulse.clone());
            tokio::spawn(http::run(listener, shared, pulse, readiness.clone(), end.clone()))
        });
        let timer = tokio::spawn(timer::run(Arc::clone(&shared), pulse, readiness));
        let gauges = tokio::spawn(gauges::run(Arc::clone(&shared)));
        let mut queue = tokio::spawn({
            let shared = Arc::clone(&shared);
            async move {
                queue::supervise(Arc::clone(&shared)).await;
                // No handler is left that could begin anything.
                shared.tasks.close();
                shared.tasks.wait().await;
            }
        });
        tracing::info!(worker = shared.name, "working");
        stop.cancelled().await;
        shared.stop.cancel();
        let grace_ms = shared.options.grace_ms;
        let finish = Duration::from_millis(grace_ms.saturating_sub(LAST_REPORTS_MS));
        if tokio::time::timeout(finish, &mut queue).await.is_err() {
            tracing::warn!(worker = shared.name, "calls in flight are handed back");
            shared.give_up.cancel();
            let rest = Duration::from_millis(grace_ms.min(LAST_REPORTS_MS));
            if tokio::time::timeout(rest, &mut queue).await.is_err() {
                tracing::warn!(worker = shared.name, "the grace period ended before the work did");
                queue.abort();
            }
        }
        shared.give_up.cancel();
        timer.abort();
        gauges.abort();
        end.cancel();
        if let Some(face) = face {
            face.abort();
        }
        shared.close().await;
        tracing::info!(worker = shared.name, "stopped");
        Ok(())
    }
}

/// Connects and works until `stop` is cancelled.
///
/// # Errors
/// Whatever keeps the process from serving.
pub async fn serve(options: WorkerOptions, stop: CancellationToken) -> Result<(), WorkersError> {
    Workers::connect(options).await?.serve(stop).await
}
