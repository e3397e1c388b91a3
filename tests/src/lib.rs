//! The test kit of UndoLog: a real Postgres per test, the processes under test, and a witness that
//! sees which calls really arrive.
//!
//! A kit panics where a program would return an error: a test that cannot be set up has failed.

pub mod pg;
pub mod wait;
pub mod witness;

pub use pg::{PrivateCluster, TestDb};
pub use wait::{eventually, within};
pub use witness::Witness;
