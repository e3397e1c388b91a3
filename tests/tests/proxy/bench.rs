//! A world with a proxy, and a client of it.

use reqwest::{Method, StatusCode};
use serde_json::Value;
use undolog_tests::World;
use undolog_tests::run::{Proxy, ProxyOptions};
use undolog_tests::world::ToolSpec;
use uuid::Uuid;

/// Fields are dropped in this order.
pub(crate) struct Bench {
    pub(crate) proxy: Proxy,
    pub(crate) world: World,
}

impl Bench {
    /// Engine, worker, proxy, and a tool of each tier: `look`, `charge`, `wire`.
    pub(crate) async fn start() -> Self {
        Self::with(|_| ProxyOptions::default()).await
    }

    /// The same with a key of the role executor, so that the proxy ticks and runs approved calls.
    pub(crate) async fn with_executor() -> Self {
        let world = World::start().await;
        let key = world.org.key(world.pool(), "executor", "proxy").await;
        Self::on(
            world,
            ProxyOptions {
                environment: vec![("UNDOLOG_PROXY_KEY".to_owned(), key)],
                ..ProxyOptions::default()
            },
        )
        .await
    }

    pub(crate) async fn with(options: impl FnOnce(&World) -> ProxyOptions) -> Self {
        let world = World::start().await;
        let options = options(&world);
        Self::on(world, options).await
    }

    pub(crate) async fn on(world: World, options: ProxyOptions) -> Self {
        world.tool(ToolSpec::safe("look")).await;
        world.tool(ToolSpec::compensable("charge")).await;
        world.tool(ToolSpec::irreversible("wire")).await;
        let proxy = Proxy::start(&world.engines[0].grpc_url(), options).await;
        Self { proxy, world }
    }

    /// A client with a new key of this role.
    pub(crate) async fn client(&self, role: &str, principal: &str) -> Http {
        let key = self.world.org.key(self.world.pool(), role, principal).await;
        Http::new(&self.proxy.url(""), Some(key))
    }

    pub(crate) async fn agent(&self) -> Http {
        self.client("agent", "agent-1").await
    }

    /// How many rows the journal's tables of calls hold.
    pub(crate) async fn rows(&self) -> i64 {
        sqlx::query_scalar(
            "SELECT (SELECT count(*) FROM undolog_effect_log)
                + (SELECT count(*) FROM undolog_sessions)
                + (SELECT count(*) FROM undolog_effect_events)
                + (SELECT count(*) FROM undolog_tool_registry)",
        )
        .fetch_one(self.world.pool())
        .await
        .unwrap()
    }
}

/// An HTTP client with a key.
#[derive(Clone)]
pub(crate) struct Http {
    pub(crate) base: String,
    pub(crate) key: Option<String>,
    pub(crate) client: reqwest::Client,
}

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
    pub(crate) body: Value,
}

impl Answer {
    /// The code of an error.
    pub(crate) fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    /// Expects this status.
    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        self
    }

    /// Expects a refusal with the documented body.
    #[track_caller]
    pub(crate) fn refused(self, status: u16, code: &str) -> Self {
        self.documented();
        assert_eq!((self.status.as_u16(), self.code()), (status, code), "{}", self.text);
        self
    }

    /// Expects the documented body of errors.
    #[track_caller]
    pub(crate) fn documented(&self) {
        for field in ["request_id", "code", "message", "timestamp"] {
            let text = self.body[field].as_str().unwrap_or_default();
            assert!(!text.is_empty(), "{field}: {} {}", self.status, self.text);
        }
        let id = self.headers.get("x-request-id").and_then(|id| id.to_str().ok());
        assert_eq!(id, self.body["request_id"].as_str());
    }
}

impl Http {
    pub(crate) fn new(base: &str, key: Option<String>) -> Self {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { base: base.to_owned(), key, client }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let mut request = self.client.request(method, format!("{}{path}", self.base));
        if let Some(key) = &self.key {
            request = request.header("X-Api-Key", key);
        }
        request
    }

    pub(crate) async fn send(&self, request: reqwest::RequestBuilder) -> Answer {
        answer(request.send().await.expect("an answer")).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(self.request(Method::POST, path).body(body.to_string())).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        self.send(self.request(Method::PUT, path).body(body.to_string())).await
    }

    pub(crate) async fn call(&self, body: Value) -> Answer {
        self.post("/mcp/tool_call", body).await
    }

    /// Begins a session with a lease.
    pub(crate) async fn begin(&self) -> Uuid {
        let begun = self.post("/sessions", serde_json::json!({})).await.is(200);
        begun.body["session_id"].as_str().unwrap().parse().unwrap()
    }
}

pub(crate) async fn answer(response: reqwest::Response) -> Answer {
    let status = response.status();
    let headers = response.headers().clone();
    let text = response.text().await.expect("a body");
    let body = serde_json::from_str(&text).unwrap_or(Value::Null);
    Answer { status, headers, text, body }
}
