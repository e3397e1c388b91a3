//! `undolog proxy`: the HTTP face, which talks to an engine and to no database.

use std::net::SocketAddr;

use clap::Args;
use secrecy::SecretString;
use undolog_core::networks::{Network, Networks};
use undolog_proxy::{ProxyError, ProxyOptions};

use super::worker::EgressArgs;
use crate::{error::CliError, shutdown};

/// Arguments of `undolog proxy`.
#[derive(Debug, Args)]
pub struct ProxyArgs {
    /// Address of the HTTP face.
    #[arg(long, env = "UNDOLOG_PROXY_LISTEN", value_name = "ADDRESS")]
    #[arg(default_value = "0.0.0.0:8080")]
    pub listen: SocketAddr,
    /// Address of the engine.
    #[arg(long, env = "UNDOLOG_ENGINE_URL", value_name = "URL")]
    #[arg(default_value = "http://127.0.0.1:50051")]
    pub engine_url: String,
    /// Keys of the role executor, one per organisation whose upstream tools this proxy runs after
    /// an approval.
    #[arg(long, env = "UNDOLOG_PROXY_KEY", hide_env_values = true, value_delimiter = ',')]
    #[arg(value_name = "KEY,…")]
    pub proxy_key: Vec<SecretString>,
    /// What upstream tools may reach.
    #[command(flatten)]
    pub egress: EgressArgs,
    /// Requests a second of one key; 0: as many as it likes.
    #[arg(long, env = "UNDOLOG_RATE_PER_SECOND", default_value_t = 1_000, value_name = "COUNT")]
    pub rate_per_second: u32,
    /// Requests that one key may save up.
    #[arg(long, env = "UNDOLOG_RATE_BURST", default_value_t = 2_000, value_name = "COUNT")]
    pub rate_burst: u32,
    /// Origins that browsers may call from.
    #[arg(long, env = "UNDOLOG_CORS_ORIGINS", value_delimiter = ',', value_name = "ORIGIN,…")]
    pub cors_origins: Vec<String>,
    /// Networks of load balancers before this proxy, whose x-forwarded-for is believed.
    #[arg(long, env = "UNDOLOG_TRUSTED_FORWARDERS", value_delimiter = ',')]
    #[arg(value_name = "NETWORK,…")]
    pub trusted_forwarders: Vec<Network>,
    /// How long requests in flight may take to end after SIGTERM.
    #[arg(long, env = "UNDOLOG_GRACE_SECONDS", default_value_t = 25, value_name = "SECONDS")]
    pub grace_seconds: u32,
}

/// Serves until a signal comes.
pub async fn run(args: ProxyArgs) -> Result<(), CliError> {
    let stop = shutdown::on_signal()?;
    let origins = args.cors_origins.iter().map(|origin| {
        origin.parse().map_err(|_| CliError::Usage(format!("--cors-origins: {origin:?} is none")))
    });
    let options = ProxyOptions {
        listen: args.listen,
        executor_keys: args.proxy_key,
        egress: args.egress.options()?,
        rate_per_second: args.rate_per_second,
        rate_burst: args.rate_burst,
        cors_origins: origins.collect::<Result<_, _>>()?,
        trusted_forwarders: Networks::new(args.trusted_forwarders),
        grace_ms: u64::from(args.grace_seconds) * 1_000,
        ..ProxyOptions::new(args.engine_url)
    };
    let proxy = undolog_proxy::serve(options, stop).await?;
    Ok(proxy.stopped().await?)
}

impl From<ProxyError> for CliError {
    fn from(error: ProxyError) -> Self {
        match error {
            ProxyError::Listen { .. } => {
                Self::Refused { reason: "ADDRESS_IN_USE".to_owned(), message: error.to_string() }
            }
            ProxyError::Engine { .. } | ProxyError::Key => Self::Usage(error.to_string()),
            other => Self::Failed(other.to_string()),
        }
    }
}
