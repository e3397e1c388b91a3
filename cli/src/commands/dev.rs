//! `undolog dev`: everything in one process over a private Postgres, for development. No keys are
//! asked for, so it listens on the loopback address only.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use undolog_core::networks::Networks;
use undolog_embedded::{Cluster, EmbeddedError};
use undolog_engine::{DevMode, EngineOptions};
use undolog_proxy::ProxyOptions;
use undolog_store::{StoreOptions, migrate};
use undolog_workers::{
    WorkerOptions, Workers,
    egress::{AllowList, EgressOptions},
};

use super::{engine, worker};
use crate::{error::CliError, out::Out, postgres, shutdown};

/// Where the data is kept unless another folder is named.
const DATA_DIR: &str = ".undolog";

/// The organisation of callers that name none.
const DEFAULT_ORG: &str = "dev";

/// Calls in flight end within this time: nobody waits long for a development server.
const GRACE_MS: u64 = 10_000;

/// How often the private Postgres is looked at.
const POSTGRES_WATCH: Duration = Duration::from_millis(500);

/// Arguments of `undolog dev`.
#[derive(Debug, Args)]
pub struct DevArgs {
    /// Folder of the private Postgres [default: .undolog here, or one that Postgres' user may
    /// reach when we are root].
    #[arg(long, env = "UNDOLOG_DATA_DIR", value_name = "FOLDER")]
    pub data_dir: Option<PathBuf>,
    /// Use this database instead of a private one.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    pub database_url: Option<SecretString>,
    /// Take the private Postgres' programs from this folder.
    #[arg(long, env = "UNDOLOG_PG_BIN", value_name = "FOLDER")]
    pub pg_bin: Option<PathBuf>,
    /// Port of the gRPC services; 0 takes a free one.
    #[arg(long, env = "UNDOLOG_DEV_PORT", default_value_t = 50_051)]
    pub port: u16,
    /// Port of /health, /ready and /metrics; 0 takes a free one.
    #[arg(long, env = "UNDOLOG_DEV_HTTP_PORT", default_value_t = 9_090)]
    pub http_port: u16,
    /// Port of the HTTP face; 0 takes a free one.
    #[arg(long, env = "UNDOLOG_DEV_PROXY_PORT", default_value_t = 8_080)]
    pub proxy_port: u16,
}

/// Runs until a signal comes.
pub async fn run(args: DevArgs, out: &Out) -> Result<(), CliError> {
    let began = Instant::now();
    let stop = shutdown::on_signal()?;
    refuse_taken_port("--port", args.port)?;
    refuse_taken_port("--http-port", args.http_port)?;
    refuse_taken_port("--proxy-port", args.proxy_port)?;
    let (mut cluster, url) = database(&args).await?;
    let served =
        serve(&args, &url, cluster.as_mut(), &stop, |server| greet(out, server, &url, began));
    let served = served.await;
    // The database goes last: whatever was under way has been written.
    if let Some(cluster) = cluster.take() {
        postgres::stop(cluster).await?;
    }
    tracing::info!("stopped");
    served
}

/// What a person needs to know.
struct Server {
    grpc: SocketAddr,
    http: Option<SocketAddr>,
    proxy: SocketAddr,
    data_dir: Option<PathBuf>,
}

async fn serve(
    args: &DevArgs,
    url: &SecretString,
    cluster: Option<&mut Cluster>,
    stop: &CancellationToken,
    greet: impl FnOnce(&Server) -> Result<(), CliError>,
) -> Result<(), CliError> {
    migrate::migrate(url.expose_secret()).await?;
    let (engine_stop, worker_stop) = (CancellationToken::new(), CancellationToken::new());
    let proxy_stop = CancellationToken::new();
    let engine = undolog_engine::serve(engine_options(args, url), engine_stop.clone()).await?;
    let workers = Workers::connect(worker_options(url)).await?;
    let proxy = undolog_proxy::serve(proxy_options(args, engine.grpc_addr()), proxy_stop.clone());
    let proxy = proxy.await?;
    let server = Server {
        grpc: engine.grpc_addr(),
        http: engine.http_addr(),
        proxy: proxy.addr(),
        data_dir: cluster.as_ref().map(|cluster| cluster.data_dir().to_owned()),
    };
    let mut proxy = tokio::spawn(proxy.stopped());
    let mut engine = tokio::spawn(engine.stopped());
    let mut workers = tokio::spawn(workers.serve(worker_stop.clone()));
    greet(&server)?;

    let ended_early = tokio::select! {
        () = stop.cancelled() => None,
        () = postgres_ends(cluster) => {
            Some(CliError::Failed("the private Postgres ended; its log says why".to_owned()))
        }
        _ = &mut engine => Some(CliError::Failed("the engine ended by itself".to_owned())),
        _ = &mut proxy => Some(CliError::Failed("the HTTP face ended by itself".to_owned())),
        _ = &mut workers => Some(CliError::Failed("the worker ended by itself".to_owned())),
    };
    if let Some(error) = ended_early {
        return Err(error);
    }
    // No new work first, then what is under way, then those who ask.
    proxy_stop.cancel();
    join(proxy).await??;
    worker_stop.cancel();
    join(workers).await??;
    engine_stop.cancel();
    join(engine).await??;
    Ok(())
}

async fn join<T>(task: tokio::task::JoinHandle<T>) -> Result<T, CliError> {
    task.await.map_err(|error| CliError::Failed(format!("a part of the server broke: {error}")))
}

fn engine_options(args: &DevArgs, url: &SecretString) -> EngineOptions {
    let store = StoreOptions::new(url.clone(), Some(engine::ROLE), "undolog-dev-engine");
    EngineOptions {
        listen: loopback(args.port),
        http_listen: Some(loopback(args.http_port)),
        dev: Some(DevMode { owner_url: url.clone(), default_org: DEFAULT_ORG.to_owned() }),
        grace_ms: GRACE_MS,
        trusted_proxies: Networks::loopback(),
        ..EngineOptions::new(store)
    }
}

fn proxy_options(args: &DevArgs, engine: SocketAddr) -> ProxyOptions {
    ProxyOptions {
        listen: loopback(args.proxy_port),
        egress: EgressOptions { allow: AllowList::loopback(), ..EgressOptions::default() },
        dev: true,
        grace_ms: GRACE_MS,
        ..ProxyOptions::new(format!("http://{engine}"))
    }
}

/// A development server's endpoints are on this machine, so loopback is allowed.
fn worker_options(url: &SecretString) -> WorkerOptions {
    let store = StoreOptions::new(url.clone(), Some(worker::ROLE), "undolog-dev-worker");
    WorkerOptions {
        egress: EgressOptions { allow: AllowList::loopback(), ..EgressOptions::default() },
        name: "dev".to_owned(),
        grace_ms: GRACE_MS,
        ..WorkerOptions::new(store)
    }
}

/// Returns when a private Postgres is no longer there; never without one.
async fn postgres_ends(cluster: Option<&mut Cluster>) {
    let Some(cluster) = cluster else { return std::future::pending().await };
    while cluster.is_running() {
        tokio::time::sleep(POSTGRES_WATCH).await;
    }
}

/// The named database, or a private one.
async fn database(args: &DevArgs) -> Result<(Option<Cluster>, SecretString), CliError> {
    if let Some(url) = &args.database_url {
        return Ok((None, url.clone()));
    }
    let cluster = match &args.data_dir {
        Some(data_dir) => postgres::start(data_dir.clone(), args.pg_bin.clone()).await?,
        None => start_somewhere(args.pg_bin.clone()).await?,
    };
    let url = postgres::url(&cluster);
    Ok((Some(cluster), url))
}

/// Here; or, when we are root and Postgres' user may not come here, where it may.
async fn start_somewhere(pg_bin: Option<PathBuf>) -> Result<Cluster, EmbeddedError> {
    let here = Path::new(DATA_DIR);
    let existed = here.exists();
    match postgres::start(here.to_owned(), pg_bin.clone()).await {
        Err(EmbeddedError::Impassable { blocked_at, .. }) if !existed => {
            tracing::info!(
                folder = %blocked_at.display(),
                "Postgres' user may not pass this folder; the data goes elsewhere"
            );
            if let Err(error) = std::fs::remove_dir_all(here) {
                tracing::warn!(%error, "an empty data folder stays behind");
            }
            postgres::start(undolog_embedded::default_data_dir(), pg_bin).await
        }
        started => started,
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Says so before anything has been started.
fn refuse_taken_port(option: &str, port: u16) -> Result<(), CliError> {
    match TcpListener::bind(loopback(port)) {
        Ok(_) => Ok(()),
        Err(error) => Err(CliError::Refused {
            reason: "ADDRESS_IN_USE".to_owned(),
            message: format!(
                "port {port} cannot be used ({error}); stop what listens there, or use {option} 0 \
                 for a free one"
            ),
        }),
    }
}

fn greet(out: &Out, server: &Server, url: &SecretString, began: Instant) -> Result<(), CliError> {
    let grpc = format!("http://{}", server.grpc);
    let http = server.http.map(|address| format!("http://{address}"));
    let proxy = format!("http://{}", server.proxy);
    let data_dir = server.data_dir.as_ref().map(|folder| folder.display().to_string());
    let ready_after_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    if out.is_json() {
        return out.json_line(&json!({
            "grpc_url": grpc,
            "http_url": http,
            "proxy_url": proxy,
            "data_dir": data_dir,
            "database_url": without_password(url),
            "password_file": password_file(server),
            "ready_after_ms": ready_after_ms,
        }));
    }
    let program = std::env::args().next().unwrap_or_else(|| "undolog".to_owned());
    out.line(format!("UndoLog is ready after {ready_after_ms} ms. For development: no keys.\n"))?;
    out.record(vec![
        ("HTTP", proxy),
        ("gRPC", grpc.clone()),
        ("metrics", http.map(|url| format!("{url}/metrics")).unwrap_or_default()),
        ("data", data_dir.map(|folder| format!("{folder} (kept)")).unwrap_or_default()),
        ("database", without_password(url)),
        ("password", password_file(server).map(|file| format!("in {file}")).unwrap_or_default()),
    ])?;
    out.line("\nTry it, in another terminal:\n")?;
    out.line(format!("  {program} demo --engine-url {grpc}"))?;
    out.line(format!("  {program} sessions list --engine-url {grpc} --org demo"))?;
    out.line("\nCtrl-C stops everything; the next start goes on with the same data.")
}

/// The database's URL as it may stand on a screen.
fn without_password(url: &SecretString) -> String {
    let text = url.expose_secret();
    let Some((scheme, rest)) = text.split_once("://") else { return String::new() };
    // A password can stand before the host, or among the parameters.
    let (address, _) = rest.split_once('?').unwrap_or((rest, ""));
    match address.rsplit_once('@') {
        Some((login, host)) => {
            let user = login.split_once(':').map_or(login, |(user, _)| user);
            format!("{scheme}://{user}@{host}")
        }
        None => format!("{scheme}://{address}"),
    }
}

/// Where the private server's password is kept, readable for its owner only.
fn password_file(server: &Server) -> Option<String> {
    server.data_dir.as_ref().map(|folder| folder.join("password").display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_reaches_the_screen() {
        for (url, shown) in [
            ("postgres://me:s3cret@host:5432/db", "postgres://me@host:5432/db"),
            ("postgres://me:s3@cret@host/db?password=s3cret", "postgres://me@host/db"),
            ("postgres://host/db", "postgres://host/db"),
            ("no url s3cret", ""),
        ] {
            assert_eq!(without_password(&SecretString::from(url)), shown);
        }
    }
}
