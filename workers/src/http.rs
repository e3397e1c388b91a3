//! `/health`, `/ready` and `/metrics` of a worker process.

use std::sync::Arc;

use axum::{Router, extract::State, http::StatusCode, middleware::from_fn, routing::get};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use undolog_listen::{Bounded, Peer, track};
use undolog_store::readiness::Readiness;

use crate::{handler::Shared, timer::Pulse};

#[derive(Clone)]
struct Face {
    shared: Arc<Shared>,
    pulse: Pulse,
    readiness: Readiness,
}

/// Serves until the process ends.
pub(crate) async fn run(
    listener: TcpListener,
    shared: Arc<Shared>,
    pulse: Pulse,
    readiness: Readiness,
    end: CancellationToken,
) {
    let router = Router::new()
        .route("/health", get(health))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics_page))
        .with_state(Face { shared, pulse, readiness })
        .layer(from_fn(track))
        .into_make_service_with_connect_info::<Peer>();
    let served = axum::serve(Bounded::http1(listener), router)
        .with_graceful_shutdown(async move { end.cancelled().await })
        .await;
    if let Err(error) = served {
        tracing::error!(%error, "the HTTP face ended");
    }
}

/// Alive: the timer ticks. A database that is away must not restart every worker.
async fn health(State(face): State<Face>) -> (StatusCode, &'static str) {
    if face.pulse.is_alive() {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the timer stands still\n")
    }
}

/// Ready: not stopping, the timer reads its tables, and the last write got through. It is answered
/// from memory, so at once.
async fn ready(State(face): State<Face>) -> (StatusCode, String) {
    if face.shared.stop.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n".to_owned());
    }
    match face.readiness.verdict() {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

async fn metrics_page(State(face): State<Face>) -> (StatusCode, String) {
    match &face.shared.options.metrics {
        Some(text) => (StatusCode::OK, (text.0)()),
        None => (StatusCode::NOT_FOUND, "this process keeps no metrics\n".to_owned()),
    }
}
