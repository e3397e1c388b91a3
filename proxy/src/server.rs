//! A proxy's life: listen, serve, drain.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use http::{HeaderName, Method, header};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use tower_http::cors::{AllowOrigin, CorsLayer};
use undolog_listen::{Bounded, Peer};

use crate::{
    approved,
    options::{ProxyError, ProxyOptions},
    rest,
    service::Proxy,
    telemetry, upkeep,
};

/// How long the reports of given up calls may take.
const GIVE_UP: Duration = Duration::from_secs(3);

/// A proxy that serves.
#[derive(Debug)]
pub struct RunningProxy {
    addr: SocketAddr,
    serving: JoinHandle<Result<(), ProxyError>>,
}

impl RunningProxy {
    /// Where HTTP is served.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Waits until the proxy has stopped.
    ///
    /// # Errors
    /// Serving ended by itself, or requests in flight did not end within the grace period.
    pub async fn stopped(self) -> Result<(), ProxyError> {
        self.serving.await.unwrap_or_else(|error| Err(ProxyError::Serve(error.to_string())))
    }
}

/// Starts a proxy. It answers once requests are served; `shutdown` ends it. The engine need not be
/// there yet.
///
/// # Errors
/// An address that cannot be used, or a key.
pub async fn serve(
    options: ProxyOptions,
    shutdown: CancellationToken,
) -> Result<RunningProxy, ProxyError> {
    telemetry::handle();
    let proxy = Proxy::new(&options, shutdown.clone())?;
    let failed = |error| ProxyError::Listen { address: options.listen, error };
    let listener = TcpListener::bind(options.listen).await.map_err(failed)?;
    let addr = listener.local_addr().map_err(failed)?;
    tracing::info!(http = %addr, engine = options.engine_url, executors = proxy.executors.len(),
        "serving");
    if options.executor_keys.is_empty() && !options.dev {
        tracing::warn!("without a key of its own this proxy runs nothing after an approval");
    }
    let serving = tokio::spawn(run(proxy, listener, options, shutdown));
    Ok(RunningProxy { addr, serving })
}

async fn run(
    proxy: Arc<Proxy>,
    listener: TcpListener,
    options: ProxyOptions,
    shutdown: CancellationToken,
) -> Result<(), ProxyError> {
    tokio::spawn(upkeep::run(Arc::clone(&proxy)));
    tokio::spawn(upkeep::follow(Arc::clone(&proxy)));
    for executor in proxy.executors.clone() {
        proxy.tasks.spawn(approved::run(Arc::clone(&proxy), executor));
    }
    let router = rest::router(Arc::clone(&proxy), cors(&options));
    let service = router.into_make_service_with_connect_info::<Peer>();
    let serving = axum::serve(Bounded::http1(listener), service)
        .with_graceful_shutdown(shutdown.clone().cancelled_owned());
    let drained = async {
        let served = serving.await.map_err(|error| ProxyError::Serve(error.to_string()));
        proxy.tasks.close();
        proxy.tasks.wait().await;
        served
    };
    let overdue = async {
        shutdown.cancelled().await;
        tokio::time::sleep(Duration::from_millis(options.grace_ms)).await;
    };
    tokio::select! {
        served = drained => served,
        () = overdue => {
            // What a call that is given up did, nobody knows: that is reported.
            proxy.give_up.cancel();
            proxy.tasks.close();
            let _reported = tokio::time::timeout(GIVE_UP, proxy.tasks.wait()).await;
            tracing::warn!(options.grace_ms, "requests in flight did not end in time");
            Err(ProxyError::Grace(options.grace_ms))
        }
    }
}

/// Browsers may call only from origins that somebody listed.
fn cors(options: &ProxyOptions) -> Option<CorsLayer> {
    if options.cors_origins.is_empty() {
        return None;
    }
    let own = ["x-api-key", "x-undolog-org-id", "x-undolog-session-id", "x-request-id"];
    let own = own.into_iter().map(HeaderName::from_static);
    let headers = own.chain([
        header::AUTHORIZATION,
        header::CONTENT_TYPE,
        HeaderName::from_static("last-event-id"),
    ]);
    Some(
        CorsLayer::new()
            .allow_origin(AllowOrigin::list(options.cors_origins.clone()))
            .allow_methods([Method::GET, Method::POST, Method::PUT])
            .allow_headers(headers.collect::<Vec<_>>())
            .expose_headers([header::RETRY_AFTER, HeaderName::from_static("x-request-id")]),
    )
}
