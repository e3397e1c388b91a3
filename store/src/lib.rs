//! The journal of UndoLog in Postgres; the only crate that writes SQL.
//!
//! Every durable step is one [`Step`]: a command that runs in one READ COMMITTED transaction which
//! first sets the organisation, then locks its session, then reads, decides and writes. Steps run
//! in a task of their own, so that a caller that goes away leaves either nothing or the whole step.

pub mod announced;
pub mod approvals;
pub mod auth;
pub mod backlog;
pub mod catalog;
pub mod dead_letters;
pub mod effects;
pub mod error;
pub mod events;
pub mod gate;
pub mod intercept;
pub mod lanes;
pub mod migrate;
pub mod notify;
pub mod operate;
pub mod orgs;
pub mod owner;
pub mod payload;
pub mod pool;
pub mod probes;
pub mod projects;
pub mod quiet;
pub mod read;
pub mod readiness;
pub mod registry;
pub mod replay;
pub mod report;
pub mod rollback;
pub mod service;
pub mod session;
pub mod sessions;
mod settings;
mod spoiled;
pub mod step;
pub mod sweeps;
pub mod tenant;
pub mod testkit;
pub mod ticket;
mod turns;
pub mod undo;
pub mod upstream;
mod url;
pub mod walk;
pub mod watch;

pub use error::{Decided, StepError};
pub use pool::{Store, StoreOptions};
pub use step::{Caller, Step};
pub use tenant::Tenant;
