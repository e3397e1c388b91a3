//! A real HTTP service with state that sees every call and misbehaves on demand.
//!
//! | route | does |
//! |---|---|
//! | `POST /do/{kind}` | makes an object of the body, answers `{"id": "{kind}-1", …}` |
//! | `POST`, `PUT`, `DELETE /undo/{kind}[/{id}]` | removes it (id from the path or body `id`) |
//! | `GET /state` | all objects by kind and id |
//! | `GET /calls` | every call so far |
//! | `POST /script` | a [`Script`] as JSON, for tests outside this process |
//!
//! A call with an `Idempotency-Key` that was answered before gets the same answer and changes
//! nothing. [`Script`]s change the answer of a route.

mod call;
mod script;
mod server;
mod state;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub use call::Call;
pub use script::{Act, Gate, Script};
pub use state::Objects;

use crate::wait::within;
use server::Shared;

/// The service. It ends with this value.
#[derive(Debug)]
pub struct Witness {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Witness {
    /// Serves on a free port of the loopback address.
    pub async fn start() -> Self {
        Self::start_on("127.0.0.1:0".parse().expect("an address")).await
    }

    /// Serves on this address.
    pub async fn start_on(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.expect("bind the witness");
        let address = listener.local_addr().expect("a bound address");
        let shared = Arc::new(Shared::default());
        let task = tokio::spawn(server::serve(listener, Arc::clone(&shared)));
        Self { address, shared, task }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a path, for example `url("/undo/charge/{result.id}")`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Changes the answers of a route from the next call on. Later scripts go first.
    pub fn script(&self, script: Script) {
        self.shared.script(script);
    }

    /// Holds every call of a route until the gate is opened; the calls are recorded on arrival.
    pub fn hold(&self, route: &str) -> Gate {
        let gate = Gate::new();
        self.script(Script::always(route, Act::Hold(gate.clone())));
        gate
    }

    /// Forgets all scripts.
    pub fn behave(&self) {
        self.shared.behave();
    }

    /// Every call so far, in order of arrival.
    pub fn calls(&self) -> Vec<Call> {
        self.shared.calls()
    }

    /// The calls whose path begins with `prefix`, for example `/undo/`.
    pub fn calls_to(&self, prefix: &str) -> Vec<Call> {
        self.calls().into_iter().filter(|call| call.path.starts_with(prefix)).collect()
    }

    /// The objects that exist now.
    pub fn objects(&self) -> Objects {
        self.shared.objects()
    }

    /// Waits until at least `count` calls whose path begins with `prefix` have arrived.
    pub async fn wait_for(&self, prefix: &str, count: usize, limit: Duration) -> Vec<Call> {
        within(limit, &format!("{count} calls to {prefix}"), || async {
            let calls = self.calls_to(prefix);
            if calls.len() >= count {
                return Ok(calls);
            }
            Err(calls.iter().map(Call::line).collect::<Vec<_>>())
        })
        .await
    }

    /// Waits until at least `count` calls whose path begins with `prefix` have been answered.
    pub async fn wait_for_answers(&self, prefix: &str, count: usize, limit: Duration) {
        within(limit, &format!("{count} answers of {prefix}"), || async {
            let calls = self.calls_to(prefix);
            if calls.iter().filter(|call| call.status.is_some()).count() >= count {
                return Ok(());
            }
            Err(calls.iter().map(Call::line).collect::<Vec<_>>())
        })
        .await;
    }

    /// Serves until the process ends; for a witness that is a process of its own.
    pub async fn serve_forever(mut self) {
        if let Err(error) = (&mut self.task).await {
            panic!("the witness ended: {error}");
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.task.abort();
    }
}
