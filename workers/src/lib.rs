//! The workers of UndoLog: compensations, sweeps and queue upkeep.
//!
//! A ticket of the queue wakes a handler; the handler claims our row and works on that. A lost,
//! doubled or late ticket is a delay and nothing else. Any number of processes may run.

mod call;
mod fair;
mod gate;
mod handler;
mod http;
mod notify;
mod options;
mod probe;
mod queue;
mod serve;
mod snapshot;
mod sweep;
mod timer;
mod walk;

/// The HTTP client of compensations.
pub use undolog_egress as egress;

pub use options::{MetricsText, WorkerOptions};
pub use serve::{Workers, WorkersError, serve};
