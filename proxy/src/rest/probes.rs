//! Probes, metrics and the document.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
    routing::{MethodRouter, get},
};
use http::{StatusCode, header::CONTENT_TYPE};

use crate::{service::Proxy, telemetry};

/// The process lives.
///
/// It does not ask the engine: an engine that is away must not restart proxies.
#[utoipa::path(get, path = "/health", tag = "probes", security(()),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn health() -> &'static str {
    "ok\n"
}

/// Calls are welcome: the engine answered a short while ago, and no shutdown has begun.
#[utoipa::path(get, path = "/ready", tag = "probes", security(()),
    responses((status = 200, body = String, content_type = "text/plain"),
        (status = 503, body = String, content_type = "text/plain")))]
pub(super) async fn ready(State(proxy): State<Arc<Proxy>>) -> (StatusCode, &'static str) {
    if proxy.stop.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n");
    }
    if !proxy.is_ready() {
        return (StatusCode::SERVICE_UNAVAILABLE, "the engine does not answer\n");
    }
    (StatusCode::OK, "ready\n")
}

/// The process' metrics, in the text form of Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "probes", security(()),
    responses((status = 200, body = String, content_type = "text/plain"),
        (status = 404, body = String, content_type = "text/plain")))]
pub(super) async fn metrics() -> Response {
    let Some(handle) = telemetry::handle() else {
        return (StatusCode::NOT_FOUND, "metrics are recorded elsewhere\n").into_response();
    };
    handle.run_upkeep();
    let text_form = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (text_form, handle.render()).into_response()
}

/// `/openapi.json`.
pub(super) fn document(document: String) -> MethodRouter<Arc<Proxy>> {
    let document: Arc<str> = document.into();
    get(move || {
        let document = Arc::clone(&document);
        async move { ([(CONTENT_TYPE, "application/json")], document.to_string()) }
    })
}
