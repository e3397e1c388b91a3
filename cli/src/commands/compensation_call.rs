//! `undolog compensation-call`: makes one call, which a worker writes to its standard input.

use rustix::process::{Resource, Rlimit, setrlimit};

use crate::error::CliError;

/// Address space of the process: far above what a call needs, and a bound for one that eats memory,
/// so that it ends this process and not the worker beside it.
const BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;

/// Reads the call, makes it, writes the answer.
pub async fn run() -> Result<(), CliError> {
    let limit = Rlimit { current: Some(BYTES_MAX), maximum: Some(BYTES_MAX) };
    if let Err(error) = setrlimit(Resource::As, limit) {
        tracing::debug!(%error, "memory is not limited");
    }
    let made = undolog_workers::make_one_call().await;
    made.map_err(|error| CliError::Failed(format!("the call was not made: {error}")))
}
