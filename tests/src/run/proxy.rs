//! Proxies as processes of their own.

use std::net::SocketAddr;

use super::process::{Process, Spec};
use super::servers::{ALLOWED, binary, free_address};

/// How a proxy is started.
#[derive(Clone, Debug, Default)]
pub struct ProxyOptions {
    /// More arguments.
    pub arguments: Vec<String>,
    /// More environment, for example a key of the role executor.
    pub environment: Vec<(String, String)>,
}

/// A running proxy.
#[derive(Debug)]
pub struct Proxy {
    /// Its process.
    pub process: Process,
    http: SocketAddr,
}

impl Proxy {
    /// Starts a proxy before this engine and waits until it is ready.
    pub async fn start(engine_url: &str, options: ProxyOptions) -> Self {
        let http = free_address();
        let mut spec = Spec::new("proxy", binary())
            .args(["proxy", "--listen"])
            .args([http.to_string()])
            .args(["--engine-url", engine_url])
            .args(["--allow-egress", ALLOWED])
            .args(options.arguments);
        for (name, value) in options.environment {
            spec = spec.env(name, value);
        }
        let mut proxy = Self { process: spec.spawn(), http };
        proxy.wait_ready().await;
        proxy
    }

    /// Waits until the engine has answered it.
    pub async fn wait_ready(&mut self) {
        let url = self.url("/ready");
        self.process.wait_ready(&url).await;
    }

    /// Starts it again as it was, on the same address.
    pub async fn start_again(&mut self) {
        self.process = self.process.spec().clone().spawn();
        self.wait_ready().await;
    }

    /// A URL of its face.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.http)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.http
    }
}
