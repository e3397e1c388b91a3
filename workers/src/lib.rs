//! The workers of UndoLog: compensations, sweeps and queue upkeep.
//!
//! A ticket of the queue wakes a handler; the handler claims our row and works on that. A lost,
//! doubled or late ticket is a delay and nothing else. Any number of processes may run.

mod call;
mod fair;
mod gauges;
mod handler;
mod http;
mod lane;
mod notify;
mod options;
mod own_process;
mod probe;
mod queue;
mod serve;
mod snapshot;
mod sweep;
mod timer;
mod wake;
mod walk;

/// The HTTP client of compensations.
pub use undolog_egress as egress;

pub use options::{MetricsText, WorkerOptions};
pub use own_process::{COMMAND as ONE_CALL_COMMAND, OneCall, make_one_call};
pub use serve::{Workers, WorkersError, serve};
