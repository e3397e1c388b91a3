//! `undolog engine`: the gRPC engine, which records effects.

use clap::Args;

use crate::error::CliError;

/// Arguments of `undolog engine`.
#[derive(Debug, Args)]
pub struct EngineArgs {
    /// Address of the gRPC services.
    #[arg(long, env = "UNDOLOG_LISTEN", default_value = "0.0.0.0:50051", value_name = "ADDRESS")]
    pub listen: String,
    /// a
    #[arg(long, env = "UNDOLOG_DATABASE_URL", value_name = "ADDRESS")]
    pub database_url: String,
}

/// Serves until a signal comes.
pub async fn run(_args: EngineArgs) -> Result<(), CliError> {
    Err(CliError::Failed("the engine is not built in yet".to_owned()))
}
