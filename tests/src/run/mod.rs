//! The processes under test.

mod log;
mod process;
mod servers;

pub use process::{Process, Spec};
pub use servers::{Engine, EngineOptions, Worker, WorkerOptions, binary};
