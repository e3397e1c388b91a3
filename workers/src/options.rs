//! How a worker process runs.

use std::{fmt, net::SocketAddr, sync::Arc};

use undolog_store::StoreOptions;

use crate::{egress::EgressOptions, own_process::OneCall};

/// The metrics page of the process: whoever installed the recorder renders it.
#[derive(Clone)]
pub struct MetricsText(pub Arc<dyn Fn() -> String + Send + Sync>);

impl fmt::Debug for MetricsText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MetricsText")
    }
}

/// Options of a worker process.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// How to reach Postgres. Two pools are opened with it: one for work, one for the queue and for
    /// the renewal of leases, so that neither waits for the other.
    pub store: StoreOptions,
    /// What compensations may reach, and where secrets come from.
    pub egress: EgressOptions,
    /// How a process is started that makes one call, for calls that may have ended a worker.
    pub one_call: OneCall,
    /// First part of the worker's name; the rest is new at every start.
    pub name: String,
    /// Rollbacks that are walked at the same time.
    pub concurrency: usize,
    /// How often the queue is asked when no notification comes.
    pub poll_interval_ms: u64,
    /// A rollback is handed over after so many calls,
    pub slice_calls: u32,
    /// or after so long, so that one long session does not hold the others up.
    pub slice_ms: u64,
    /// How long a stop may take: calls that run longer are handed back.
    pub grace_ms: u64,
    /// Address of `/health`, `/ready` and `/metrics`.
    pub http_listen: Option<SocketAddr>,
    /// What `/metrics` answers.
    pub metrics: Option<MetricsText>,
}

impl WorkerOptions {
    /// Options with the defaults of a production worker.
    #[must_use]
    pub fn new(store: StoreOptions) -> Self {
        Self {
            store,
            egress: EgressOptions::default(),
            one_call: OneCall::default(),
            name: "worker".to_owned(),
            concurrency: 32,
            poll_interval_ms: 200,
            slice_calls: 200,
            slice_ms: 5_000,
            grace_ms: 25_000,
            http_listen: None,
            metrics: None,
        }
    }
}
