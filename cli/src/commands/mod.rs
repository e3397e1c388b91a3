//! One file per subcommand: its arguments and its `run`.

pub mod approvals;
pub mod compensation_call;
pub mod compensations;
pub mod dead_letters;
pub mod demo;
pub mod demo_service;
pub mod dev;
pub mod engine;
pub mod keys;
pub mod migrate;
mod notifications;
pub mod orgs;
pub mod projects;
pub mod proxy;
pub mod queue;
pub mod sessions;
mod sessions_watch;
pub mod tools;
pub mod unknown;
mod value;
pub mod worker;
