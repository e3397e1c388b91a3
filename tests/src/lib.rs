//! The test kit of UndoLog: a real Postgres per test, the processes under test, and a witness that
//! sees which calls really arrive.
//!
//! A kit panics where a program would return an error: a test that cannot be set up has failed.

pub mod check;
pub mod inputs;
pub mod pg;
pub mod python;
pub mod run;
pub mod size;
pub mod wait;
pub mod witness;
pub mod world;

pub use pg::{PrivateCluster, TestDb};
pub use size::size;
pub use wait::{SOON, eventually, within};
pub use witness::Witness;
pub use world::World;

/// GETs a URL of a server under test, without a proxy in between.
///
/// # Errors
/// The server did not answer.
pub async fn http_get(url: impl reqwest::IntoUrl) -> Result<reqwest::Response, reqwest::Error> {
    reqwest::Client::builder().no_proxy().build()?.get(url).send().await
}
