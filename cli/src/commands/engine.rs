//! `undolog engine`: the gRPC engine, which records effects.

use std::net::SocketAddr;

use clap::Args;
use undolog_core::networks::{Network, Networks};
use undolog_engine::{EngineError, EngineOptions};

use crate::{database::DatabaseArgs, error::CliError, shutdown};

/// The role of an engine in the database.
pub(crate) const ROLE: &str = "undolog_app";

/// Arguments of `undolog engine`.
#[derive(Debug, Args)]
pub struct EngineArgs {
    /// The journal.
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// Address of the gRPC services.
    #[arg(long, env = "UNDOLOG_LISTEN", default_value = "0.0.0.0:50051", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Address of /health, /ready and /metrics.
    #[arg(long, env = "UNDOLOG_HTTP_LISTEN", value_name = "ADDRESS")]
    #[arg(default_value = "0.0.0.0:9090")]
    pub http_listen: SocketAddr,
    /// Networks of the proxies: what they say about their clients' addresses is believed and stands
    /// beside a decision. Nobody's word by default.
    #[arg(long, env = "UNDOLOG_TRUSTED_PROXIES", value_delimiter = ',', value_name = "NETWORK,…")]
    pub trusted_proxies: Vec<Network>,
    /// How long calls in flight may take to end after SIGTERM.
    #[arg(long, env = "UNDOLOG_GRACE_SECONDS", default_value_t = 25, value_name = "SECONDS")]
    pub grace_seconds: u32,
}

/// Serves until a signal comes.
pub async fn run(args: EngineArgs) -> Result<(), CliError> {
    let stop = shutdown::on_signal()?;
    let store = args.database.store_options(ROLE, "undolog-engine");
    let options = EngineOptions {
        listen: args.listen,
        http_listen: Some(args.http_listen),
        trusted_proxies: Networks::new(args.trusted_proxies),
        grace_ms: u64::from(args.grace_seconds) * 1_000,
        ..EngineOptions::new(store)
    };
    let engine = undolog_engine::serve(options, stop).await?;
    Ok(engine.stopped().await?)
}

impl From<EngineError> for CliError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Store(error) => error.into(),
            EngineError::Catalog(error) => error.into(),
            EngineError::Listen { .. } => {
                Self::Refused { reason: "ADDRESS_IN_USE".to_owned(), message: error.to_string() }
            }
            other => Self::Failed(other.to_string()),
        }
    }
}
