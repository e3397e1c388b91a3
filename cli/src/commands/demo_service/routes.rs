//! The service's HTTP face.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse as _, Response},
    routing::{delete, get, post},
};
use serde_json::{Value, json};

use super::state::{Kind, Memory, UndoCall};

/// How long a stalled caller waits: longer than anybody's patience in the demonstration.
const STALL: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Service {
    memory: Mutex<Memory>,
    undo_delay: Duration,
    stall_undo: Option<usize>,
}

type Shared = State<Arc<Service>>;

impl Service {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn create(&self, kind: Kind, name: &str, body: Value) -> Response {
        let id = self.memory().create(kind, body);
        (StatusCode::CREATED, Json(json!({name: id}))).into_response()
    }

    async fn undo(&self, kind: Kind, id: &str, request: Undo) -> Response {
        let Some(key) = request.headers.get("idempotency-key").and_then(|key| key.to_str().ok())
        else {
            return refused(StatusCode::BAD_REQUEST, "an Idempotency-Key is needed");
        };
        let call = UndoCall {
            key: key.to_owned(),
            request: format!("{} {}", request.method, request.uri.path()),
            body: serde_json::from_slice(&request.body).unwrap_or(Value::Null),
            applied: false,
        };
        let (known, number) = {
            let mut memory = self.memory();
            let known = memory.remove(kind, id, call);
            (known, memory.undo_calls().len())
        };
        let stalled = self.stall_undo == Some(number);
        tokio::time::sleep(if stalled { STALL } else { self.undo_delay }).await;
        if known {
            Json(json!({"ok": true})).into_response()
        } else {
            refused(StatusCode::NOT_FOUND, "there is nothing with this id")
        }
    }
}

/// What an undoing call came with.
struct Undo {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
}

/// The routes, over a fresh memory.
pub(super) fn router(undo_delay_ms: u64, stall_undo: Option<usize>) -> Router {
    let service = Service {
        memory: Mutex::new(Memory::with_history()),
        undo_delay: Duration::from_millis(undo_delay_ms),
        stall_undo,
    };
    Router::new()
        .route("/customers", post(create_customer))
        .route("/customers/{id}", delete(delete_customer))
        .route("/charges", post(create_charge))
        .route("/charges/{id}/refund", post(refund_charge))
        .route("/emails", post(send_email))
        .route("/emails/{id}/recall", post(recall_email))
        .route("/shipments", post(ship))
        .route("/state", get(state))
        .route("/undo-calls", get(undo_calls))
        .with_state(Arc::new(service))
}

async fn create_customer(State(service): Shared, Json(body): Json<Value>) -> Response {
    service.create(Kind::Customer, "customer_id", body)
}

async fn create_charge(State(service): Shared, Json(body): Json<Value>) -> Response {
    service.create(Kind::Charge, "charge_id", body)
}

async fn send_email(State(service): Shared, Json(body): Json<Value>) -> Response {
    service.create(Kind::Email, "email_id", body)
}

/// The warehouse is empty: the call that makes the agent's run fail.
async fn ship() -> Response {
    refused(StatusCode::CONFLICT, "out of stock")
}

async fn delete_customer(
    State(service): Shared,
    Path(id): Path<String>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    service.undo(Kind::Customer, &id, Undo { method, uri, headers, body }).await
}

async fn refund_charge(
    State(service): Shared,
    Path(id): Path<String>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    service.undo(Kind::Charge, &id, Undo { method, uri, headers, body }).await
}

async fn recall_email(
    State(service): Shared,
    Path(id): Path<String>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    service.undo(Kind::Email, &id, Undo { method, uri, headers, body }).await
}

async fn state(State(service): Shared) -> Response {
    Json(service.memory().world().clone()).into_response()
}

async fn undo_calls(State(service): Shared) -> Response {
    Json(service.memory().undo_calls().to_vec()).into_response()
}

fn refused(status: StatusCode, message: &str) -> Response {
    (status, Json(json!({"error": message}))).into_response()
}
