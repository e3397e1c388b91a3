//! Postgres for tests: one shared server with a database per test, or a server of the test's own
//! whose clock it moves and which it may crash.
//!
//! `UNDOLOG_PG_BIN` chooses the version.

mod clock;
mod database;
mod folders;
mod private;
mod shared;
mod template;

pub use clock::{Clock, Skew};
pub use database::TestDb;
pub(crate) use folders::lock;
pub use folders::workspace_root;
pub use private::{PrivateCluster, PrivateOptions};
