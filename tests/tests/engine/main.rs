//! The engine in this process, over real gRPC and a real Postgres: who may call, what is shown of
//! whom, and what becomes of calls whose callers go away.

mod auth;
mod bench;
mod cancelled;
mod dev;
mod errors;
mod operators;
mod overload;
mod paging;
mod registry;
mod sizes;
mod tenants;
mod waits;
mod watch;
