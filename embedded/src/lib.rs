//! A private Postgres server for dev, demo and tests.
//!
//! The server's binaries come from the machine ([`find_installation`]); its data folder, its log
//! and its password belong to us. The server listens on the loopback address only and in a process
//! group of its own, so that Ctrl-C in a terminal reaches us first and we decide when it stops.
//!
//! ```no_run
//! # fn main() -> Result<(), undolog_embedded::EmbeddedError> {
//! let cluster = undolog_embedded::ClusterOptions::new("/var/lib/undolog/dev").start()?;
//! let url = cluster.url("postgres");
//! cluster.stop()?;
//! # Ok(()) }
//! ```
//!
//! Everything here blocks; from async code call it on a blocking thread.

mod cluster;
#[cfg(feature = "download")]
mod download;
mod error;
mod files;
mod find;
mod initdb;
mod options;
mod postmaster;
mod user;

pub use cluster::{Cluster, remove};
#[cfg(feature = "download")]
pub use download::Download;
pub use error::EmbeddedError;
pub use files::default_data_dir;
pub use find::{BIN_DIR_VARIABLE, Installation, MAJOR_MIN, find_installation};
pub use options::{Auth, ClusterOptions};
pub use postmaster::{Running, running};
