//! The gRPC engine of UndoLog: it records effects and enqueues work, and executes nothing itself.
//!
//! A request passes the gate (who calls, may this role call this, how long may it take), becomes
//! one step of the journal in `rpc/<verb>.rs`, and its answer or refusal goes back as one message
//! or one gRPC status. The engine keeps nothing that matters in memory: any number of engines serve
//! one journal.

mod answer;
mod bell;
mod call;
mod convert;
mod gate;
mod http;
mod hub;
mod listen;
mod options;
mod rpc;
mod server;
mod status;
mod telemetry;
mod tick;
mod together;

pub use options::{DevMode, EngineError, EngineOptions};
pub use server::{RunningEngine, serve};
