//! `undolog worker`: undoes effects and watches over leases.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use clap::Args;
use metrics_exporter_prometheus::PrometheusBuilder;
use undolog_workers::{
    MetricsText, WorkerOptions, Workers, WorkersError,
    egress::{Allowed, EgressOptions, SecretSource},
};

use crate::{database::DatabaseArgs, error::CliError, shutdown};

/// The role of a worker in the database.
pub(crate) const ROLE: &str = "undolog_worker";

/// Arguments of `undolog worker`.
#[derive(Debug, Args)]
pub struct WorkerArgs {
    /// The journal.
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// What compensations may reach.
    #[command(flatten)]
    pub egress: EgressArgs,
    /// Address of /health, /ready and /metrics.
    #[arg(long, env = "UNDOLOG_HTTP_LISTEN", value_name = "ADDRESS")]
    #[arg(default_value = "0.0.0.0:9091")]
    pub http_listen: SocketAddr,
    /// First part of this worker's name in the journal.
    #[arg(long, env = "UNDOLOG_WORKER_NAME", default_value = "worker", value_name = "NAME")]
    pub worker_name: String,
    /// Rollbacks that are walked at the same time.
    #[arg(long, env = "UNDOLOG_CONCURRENCY", default_value_t = 32, value_name = "COUNT")]
    pub concurrency: usize,
    /// How often the queue is asked when no notification comes.
    #[arg(long, env = "UNDOLOG_POLL_INTERVAL_MS", default_value_t = 200, value_name = "MS")]
    pub poll_interval_ms: u64,
    /// How long calls in flight may take to end after SIGTERM; the rest is handed back.
    #[arg(long, env = "UNDOLOG_GRACE_SECONDS", default_value_t = 25, value_name = "SECONDS")]
    pub grace_seconds: u32,
}

/// What compensations may reach beyond public addresses, and where their secrets are.
#[derive(Debug, Clone, Default, Args)]
pub struct EgressArgs {
    /// Networks (10.0.0.0/8) and services (host:port) that compensations and upstream tools may
    /// reach although they are not public. `acme=10.0.0.0/8` is for one organisation only.
    #[arg(long, env = "UNDOLOG_ALLOW_EGRESS", value_delimiter = ',', value_name = "NETWORK,…")]
    pub allow_egress: Vec<Allowed>,
    /// Folder of secrets: `<org>/<NAME>`, then `_shared/<NAME>`, which every organisation may send
    /// to its endpoints. The environment comes first: `UNDOLOG_SECRET_<ORG>__<NAME>`, then
    /// `UNDOLOG_SHARED_SECRET_<NAME>`.
    #[arg(long, env = "UNDOLOG_SECRETS_DIR", value_name = "FOLDER")]
    pub secrets_dir: Option<PathBuf>,
    /// Certificates (PEM) of authorities to trust besides the public ones.
    #[arg(long, env = "UNDOLOG_EXTRA_ROOTS", value_name = "FILE")]
    pub extra_roots: Option<PathBuf>,
}

impl EgressArgs {
    /// The worker's options, with the certificates read.
    pub fn options(self) -> Result<EgressOptions, CliError> {
        let extra_roots_pem = match &self.extra_roots {
            None => Vec::new(),
            Some(path) => std::fs::read(path).map_err(|error| {
                CliError::Usage(format!("--extra-roots {}: {error}", path.display()))
            })?,
        };
        Ok(EgressOptions {
            allow: self.allow_egress,
            secrets: SecretSource { dir: self.secrets_dir },
            extra_roots_pem,
        })
    }
}

/// Works until a signal comes.
pub async fn run(args: WorkerArgs) -> Result<(), CliError> {
    let stop = shutdown::on_signal()?;
    let store = args.database.store_options(ROLE, "undolog-worker");
    let options = WorkerOptions {
        egress: args.egress.options()?,
        name: args.worker_name,
        concurrency: args.concurrency,
        poll_interval_ms: args.poll_interval_ms,
        grace_ms: u64::from(args.grace_seconds) * 1_000,
        http_listen: Some(args.http_listen),
        metrics: Some(install_metrics()?),
        ..WorkerOptions::new(store)
    };
    let workers = Workers::connect(options).await?;
    if let Some(address) = workers.http_address() {
        tracing::info!(http.address = %address, "listening");
    }
    Ok(workers.serve(stop).await?)
}

/// One recorder for the process, rendered by the worker's own page.
fn install_metrics() -> Result<MetricsText, CliError> {
    let handle = PrometheusBuilder::new()
        .install_recorder()
        .map_err(|error| CliError::Failed(format!("cannot set metrics up: {error}")))?;
    Ok(MetricsText(Arc::new(move || handle.render())))
}

impl From<WorkersError> for CliError {
    fn from(error: WorkersError) -> Self {
        match error {
            WorkersError::Store(error) => error.into(),
            WorkersError::Unfit(error) => error.into(),
            WorkersError::Listen { .. } => {
                Self::Refused { reason: "ADDRESS_IN_USE".to_owned(), message: error.to_string() }
            }
            other => Self::Failed(other.to_string()),
        }
    }
}
