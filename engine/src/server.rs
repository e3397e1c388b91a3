//! An engine's life: check, tick, listen, serve, drain.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{net::TcpListener, task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic_health::server::HealthReporter;
use undolog_listen::Bounded;
use undolog_proto::{READY, v1};
use undolog_store::{Store, auth::Authenticator, guard, service};

use crate::{
    call::Engine,
    gate::{GateLayer, UnderWay},
    http, listen,
    options::{EngineError, EngineOptions},
    rpc, telemetry,
    tick::Ticks,
};

/// Streams of one connection at once: as many as there are places for calls, so that a proxy's
/// calls never wait for each other on the way.
const STREAMS_PER_CONNECTION_MAX: u32 = 4_096;
/// Headers of one request, in bytes: a key, two ids and a deadline are small.
const HEADER_BYTES_MAX: u32 = 16 * 1024;
/// How long streams may take to end when nothing else is under way, and how often that is looked
/// at.
const STREAMS_GRACE: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often readiness is told.
const READINESS_EVERY: Duration = Duration::from_millis(250);
/// A silent connection is asked whether it still lives.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// An engine that serves.
#[derive(Debug)]
pub struct RunningEngine {
    grpc_addr: SocketAddr,
    http_addr: Option<SocketAddr>,
    serving: JoinHandle<Result<(), EngineError>>,
}

impl RunningEngine {
    /// Where gRPC is served.
    #[must_use]
    pub fn grpc_addr(&self) -> SocketAddr {
        self.grpc_addr
    }

    /// Where probes and scrapers are served.
    #[must_use]
    pub fn http_addr(&self) -> Option<SocketAddr> {
        self.http_addr
    }

    /// Waits until the engine has stopped.
    ///
    /// # Errors
    /// Serving ended by itself, or calls in flight did not end within the grace period.
    pub async fn stopped(self) -> Result<(), EngineError> {
        self.serving.await.unwrap_or_else(|error| Err(EngineError::Serve(error.to_string())))
    }
}

/// Starts an engine. It answers once calls are served; `shutdown` ends it.
///
/// # Errors
/// Whatever stands in the way of serving: the journal, its schema or role, an address.
pub async fn serve(
    options: EngineOptions,
    shutdown: CancellationToken,
) -> Result<RunningEngine, EngineError> {
    if options.dev.is_some() && !options.listen.ip().is_loopback() {
        return Err(EngineError::DevNotOnLoopback(options.listen));
    }
    telemetry::handle();
    let store = Store::connect(&options.store).await?;
    service::check_runtime(&store).await?;
    let ticks = Arc::new(Ticks::first(&store).await?);
    let grpc = bind(options.listen).await?;
    let probes = match options.http_listen {
        Some(address) => Some(bind(address).await?),
        None => None,
    };
    let (grpc_addr, http_addr) = (address_of(&grpc)?, probes.as_ref().map(address_of).transpose()?);
    tracing::info!(grpc = %grpc_addr, http = ?http_addr, dev = options.dev.is_some(), "serving");
    let parts = Parts { options, store, ticks, grpc, probes, shutdown };
    let serving = tokio::spawn(parts.run());
    Ok(RunningEngine { grpc_addr, http_addr, serving })
}

async fn bind(address: SocketAddr) -> Result<TcpListener, EngineError> {
    TcpListener::bind(address).await.map_err(|error| EngineError::Listen { address, error })
}

fn address_of(listener: &TcpListener) -> Result<SocketAddr, EngineError> {
    listener.local_addr().map_err(|error| EngineError::Serve(error.to_string()))
}

struct Parts {
    options: EngineOptions,
    store: Store,
    ticks: Arc<Ticks>,
    grpc: TcpListener,
    probes: Option<TcpListener>,
    shutdown: CancellationToken,
}

impl Parts {
    async fn run(self) -> Result<(), EngineError> {
        let Self { options, store, ticks, grpc, probes, shutdown } = self;
        // Ends what runs beside the calls, after the last of them.
        let ended = CancellationToken::new();
        let _end = ended.clone().drop_guard();
        let is_dev = options.dev.is_some();
        let engine = Arc::new(Engine::new(store.clone(), options.dev, shutdown.clone()));
        tokio::spawn(Arc::clone(&engine.hub).look(store.clone(), ended.clone()));
        tokio::spawn(listen::listen(Arc::clone(&engine.hub), store.clone(), ended.clone()));
        let ticking = (Arc::clone(&ticks), store.clone(), ended.clone());
        tokio::spawn(async move { ticking.0.go_on(&ticking.1, &ticking.2).await });
        if let Some(listener) = probes {
            let probed =
                http::serve(listener, Arc::clone(&engine), Arc::clone(&ticks), ended.clone());
            tokio::spawn(async move {
                if let Err(error) = probed.await {
                    tracing::error!(error = %error, "probes are not served any more");
                }
            });
        }
        let authenticator = Authenticator::new(store.clone());
        let gate = GateLayer::new(authenticator, is_dev, options.trusted_proxies);
        let served = serve_calls(grpc, engine, gate, ticks, shutdown, options.grace_ms).await;
        drop(_end);
        store.close().await;
        served
    }
}

async fn serve_calls(
    listener: TcpListener,
    engine: Arc<Engine>,
    gate: GateLayer,
    ticks: Arc<Ticks>,
    shutdown: CancellationToken,
    grace_ms: u64,
) -> Result<(), EngineError> {
    let under_way = gate.under_way();
    let (health, health_service) = tonic_health::server::health_reporter();
    report(&health, true).await;
    tokio::spawn(readiness(health.clone(), ticks, shutdown.clone()));
    let unreadable =
        |error: tonic_reflection::server::Error| EngineError::Reflection(error.to_string());
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(undolog_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let router = Server::builder()
        .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
        .http2_max_header_list_size(HEADER_BYTES_MAX)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .layer(gate)
        .add_service(health_service)
        .add_service(reflection().build_v1().map_err(unreadable)?)
        .add_service(reflection().build_v1alpha().map_err(unreadable)?)
        .add_service(rpc::engine_service(Arc::clone(&engine)))
        .add_service(rpc::sessions_service(Arc::clone(&engine)))
        .add_service(rpc::registry_service(Arc::clone(&engine)))
        .add_service(rpc::proxy_service(Arc::clone(&engine)))
        .add_service(rpc::operator_service(engine));
    let incoming = Bounded::http2(listener).incoming();
    let stopping = shutdown.clone();
    let serving = router.serve_with_incoming_shutdown(incoming, async move {
        stopping.cancelled().await;
        report(&health, false).await;
    });
    tokio::pin!(serving);
    let overdue = async {
        shutdown.cancelled().await;
        tokio::time::sleep(Duration::from_millis(grace_ms)).await;
    };
    tokio::select! {
        served = &mut serving => served.map_err(|error| EngineError::Serve(error.to_string())),
        () = left_alone(&shutdown, &under_way), if guard!("server.streams") => {
            tracing::info!("streams that nobody reads are cut off");
            Ok(())
        }
        () = overdue => {
            tracing::warn!(grace_ms, "calls in flight did not end in time");
            Err(EngineError::Grace(grace_ms))
        }
    }
}

/// Waits until nothing but streams is left of an engine that stops. Clients that stopped reading
/// hold theirs open; they wait for nothing, so nobody waits for them. Everybody else had the time
/// to read what was sent.
async fn left_alone(shutdown: &CancellationToken, under_way: &UnderWay) {
    shutdown.cancelled().await;
    let mut quiet_since = None;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if !under_way.is_none() {
            quiet_since = None;
            continue;
        }
        let since = *quiet_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= STREAMS_GRACE {
            return;
        }
    }
}

/// Says of the service [`READY`] what `/ready` says, so that proxies follow.
async fn readiness(health: HealthReporter, ticks: Arc<Ticks>, shutdown: CancellationToken) {
    loop {
        let status = match ticks.verdict() {
            Ok(()) if !shutdown.is_cancelled() => tonic_health::ServingStatus::Serving,
            Ok(()) | Err(_) => tonic_health::ServingStatus::NotServing,
        };
        health.set_service_status(READY, status).await;
        if shutdown.is_cancelled() {
            return;
        }
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = tokio::time::sleep(READINESS_EVERY) => {}
        }
    }
}

/// Says of the server as a whole, and of each of its services, whether it serves.
async fn report(health: &HealthReporter, serves: bool) {
    let status = if serves {
        tonic_health::ServingStatus::Serving
    } else {
        tonic_health::ServingStatus::NotServing
    };
    let services = [
        "",
        v1::undo_log_engine_server::SERVICE_NAME,
        v1::undo_log_sessions_server::SERVICE_NAME,
        v1::undo_log_registry_server::SERVICE_NAME,
        v1::undo_log_operator_server::SERVICE_NAME,
        v1::undo_log_proxy_server::SERVICE_NAME,
    ];
    for service in services {
        health.set_service_status(service, status).await;
    }
}
