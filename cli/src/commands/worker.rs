//! `undolog worker`: the gRPC worker, which records effects.

use clap::Args;

use crate::error::CliError;

/// Arguments of `undolog worker`.
#[derive(Debug, Args)]
pub struct WorkerArgs {
    /// a
    #[arg(long, env = "UNDOLOG_DATABASE_URL", value_name = "ADDRESS")]
    pub database_url: String,
}

/// Serves until a signal comes.
pub async fn run(_args: WorkerArgs) -> Result<(), CliError> {
    Err(CliError::Failed("the worker is not built in yet".to_owned()))
}
