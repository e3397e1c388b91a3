//! The processes under test.

mod log;
mod process;
mod proxy;
mod servers;

pub use process::{Process, Spec};
pub use proxy::{Proxy, ProxyOptions};
pub use servers::{Engine, EngineOptions, Worker, WorkerOptions, binary};
