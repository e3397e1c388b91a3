//! The HTTP face of UndoLog. It turns requests into calls of the engine and answers back, and keeps
//! nothing that matters: any number of proxies serve behind any balancer, without a database.
//!
//! A tool call goes from a face (`rest`) to `outcome`, which asks the engine and, for a tool with
//! an upstream endpoint, makes the granted call itself. Everything else is one RPC with other
//! clothes on.

mod approved;
mod call;
mod error;
mod keys;
mod options;
mod outcome;
mod rate;
mod rest;
mod server;
mod service;
mod telemetry;
mod upkeep;

pub use options::{ProxyError, ProxyOptions};
pub use rest::openapi;
pub use server::{RunningProxy, serve};
