//! `/health`, `/ready` and `/metrics` for probes and scrapers.

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    middleware::from_fn,
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use undolog_listen::{Bounded, Peer, track};
use undolog_store::service;

use crate::{call::Engine, telemetry, tick::Ticks};

struct Probed {
    engine: Arc<Engine>,
    ticks: Arc<Ticks>,
}

/// Serves until the engine stops.
pub(crate) async fn serve(
    listener: TcpListener,
    engine: Arc<Engine>,
    ticks: Arc<Ticks>,
    stopped: CancellationToken,
) -> Result<(), std::io::Error> {
    let routes = Router::new()
        .route("/health", get(health))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .with_state(Arc::new(Probed { engine, ticks }));
    let routes = routes.layer(from_fn(track)).into_make_service_with_connect_info::<Peer>();
    let listener = Bounded::http1(listener);
    axum::serve(listener, routes).with_graceful_shutdown(stopped.cancelled_owned()).await
}

/// The process lives. It does not ask the journal: a journal that is away must not restart engines.
async fn health() -> &'static str {
    "ok\n"
}

/// Calls are welcome: the last write got through and there is room for more, and no shutdown has
/// begun. It is answered from memory, so at once.
async fn ready(State(probed): State<Arc<Probed>>) -> (StatusCode, String) {
    if probed.engine.stop.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n".to_owned());
    }
    match probed.ticks.verdict() {
        Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

async fn metrics(State(probed): State<Arc<Probed>>) -> Response {
    let Some(handle) = telemetry::handle() else {
        return (StatusCode::NOT_FOUND, "metrics are recorded elsewhere\n").into_response();
    };
    let (connections, idle) = service::connections(&probed.engine.store);
    metrics::gauge!("undolog_pool_connections").set(f64::from(connections));
    metrics::gauge!("undolog_pool_idle").set(u32::try_from(idle).map_or(f64::MAX, f64::from));
    let waiting = u32::try_from(probed.engine.hub.waiting()).unwrap_or(u32::MAX);
    metrics::gauge!("undolog_waiting_calls").set(f64::from(waiting));
    handle.run_upkeep();
    let text_form = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (text_form, handle.render()).into_response()
}
