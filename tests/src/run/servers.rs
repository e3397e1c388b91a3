//! Engines and workers as processes of their own.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::process::{Process, Spec};

/// The program under test: `undolog` with crash points and guard switches built in.
pub fn binary() -> PathBuf {
    let own = std::env::current_exe().expect("the test's own path");
    let folder = own.parent().and_then(|deps| deps.parent()).expect("the target folder");
    let path = folder.join("undolog-under-test");
    assert!(path.is_file(), "{} is not built: cargo build -p undolog-tests", path.display());
    path
}

/// What compensations of the tests may reach: the witness, and a host that does not exist.
pub(super) const ALLOWED: &str = "127.0.0.0/8,no-such-host.invalid:80";

/// A port that nobody listens on now. It lies below those that outgoing connections take, so that
/// none of them takes it before the server does, or while the server is started again.
pub(crate) fn free_address() -> SocketAddr {
    const FIRST: u32 = 12_000;
    const COUNT: u32 = 20_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Test processes that run at the same time begin far from each other.
    let own = std::process::id().wrapping_mul(97);
    for _ in 0..COUNT {
        let offset = own.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = u16::try_from(FIRST + offset).expect("a port");
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return listener.local_addr().expect("its address");
        }
    }
    panic!("no port is free")
}

/// How an engine is started.
#[derive(Clone, Debug, Default)]
pub struct EngineOptions {
    /// More arguments.
    pub arguments: Vec<String>,
    /// More environment, for example a crash point.
    pub environment: Vec<(String, String)>,
}

/// A running engine.
#[derive(Debug)]
pub struct Engine {
    /// Its process.
    pub process: Process,
    grpc: SocketAddr,
    http: SocketAddr,
}

impl Engine {
    /// Starts an engine on free ports and waits until it is ready.
    pub async fn start(database_url: &str, options: EngineOptions) -> Self {
        let mut engine = Self::spawn(database_url, options);
        engine.wait_ready().await;
        engine
    }

    /// Starts an engine on free ports.
    pub fn spawn(database_url: &str, options: EngineOptions) -> Self {
        let (grpc, http) = (free_address(), free_address());
        let mut spec = Spec::new("engine", binary())
            .args(["engine", "--listen"])
            .args([grpc.to_string()])
            .args(["--http-listen".to_owned(), http.to_string()])
            .args(options.arguments)
            .env("DATABASE_URL", database_url);
        for (name, value) in options.environment {
            spec = spec.env(name, value);
        }
        Self { process: spec.spawn(), grpc, http }
    }

    /// Waits until it serves.
    pub async fn wait_ready(&mut self) {
        let url = format!("http://{}/ready", self.http);
        self.process.wait_ready(&url).await;
    }

    /// Starts it again as it was, on the same addresses.
    pub async fn start_again(&mut self) {
        self.process = self.process.spec().clone().spawn();
        self.wait_ready().await;
    }

    /// Where its gRPC is.
    pub fn grpc_url(&self) -> String {
        format!("http://{}", self.grpc)
    }

    /// A URL of its health, ready and metrics server.
    pub fn http_url(&self, path: &str) -> String {
        format!("http://{}{path}", self.http)
    }
}

/// How a worker is started.
#[derive(Clone, Debug, Default)]
pub struct WorkerOptions {
    /// More arguments.
    pub arguments: Vec<String>,
    /// More environment, for example a crash point.
    pub environment: Vec<(String, String)>,
}

/// A running worker.
#[derive(Debug)]
pub struct Worker {
    /// Its process.
    pub process: Process,
    http: SocketAddr,
}

impl Worker {
    /// Starts a worker and waits until it is ready. It may call the loopback address, where the
    /// witness is.
    pub async fn start(database_url: &str, options: WorkerOptions) -> Self {
        let mut worker = Self::spawn(database_url, options);
        worker.wait_ready().await;
        worker
    }

    /// Starts a worker.
    pub fn spawn(database_url: &str, options: WorkerOptions) -> Self {
        let http = free_address();
        let mut spec = Spec::new("worker", binary())
            .args(["worker", "--http-listen"])
            .args([http.to_string()])
            .args(["--allow-egress", ALLOWED])
            .args(options.arguments)
            .env("DATABASE_URL", database_url);
        for (name, value) in options.environment {
            spec = spec.env(name, value);
        }
        Self { process: spec.spawn(), http }
    }

    /// Waits until it claims work.
    pub async fn wait_ready(&mut self) {
        let url = format!("http://{}/ready", self.http);
        self.process.wait_ready(&url).await;
    }

    /// Starts it again as it was.
    pub async fn start_again(&mut self) {
        self.process = self.process.spec().clone().spawn();
        self.wait_ready().await;
    }

    /// A URL of its health, ready and metrics server.
    pub fn http_url(&self, path: &str) -> String {
        format!("http://{}{path}", self.http)
    }
}
