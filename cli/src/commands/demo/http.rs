//! The demonstration's view of the service: plain HTTP, as any client would.

use std::time::Duration;

use reqwest::Method;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    commands::demo_service::{UndoCall, World},
    error::CliError,
};

/// A client of the service.
#[derive(Debug, Clone)]
pub(super) struct Service {
    client: reqwest::Client,
    /// Where the service is.
    pub(super) url: String,
}

/// What the service answered.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: Value,
    pub(super) duration_ms: u64,
}

impl Reply {
    /// Whether the call did what it was for.
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

impl Service {
    pub(super) fn new(url: String) -> Result<Self, CliError> {
        let client = reqwest::Client::builder()
            .no_proxy()
            .timeout(Duration::from_secs(10))
            .build()
            .map_err(|error| CliError::Failed(format!("cannot make an HTTP client: {error}")))?;
        Ok(Self { client, url })
    }

    /// One call with a JSON body.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Reply, CliError> {
        let started = tokio::time::Instant::now();
        let (status, text) = self.send(Method::POST, path, body.to_string()).await?;
        let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok(Reply { status, body, duration_ms })
    }

    /// What the service holds.
    pub(super) async fn world(&self) -> Result<World, CliError> {
        self.get("/state").await
    }

    /// Every undoing call that arrived, in the order of arrival.
    pub(super) async fn undo_calls(&self) -> Result<Vec<UndoCall>, CliError> {
        self.get("/undo-calls").await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CliError> {
        let (_, text) = self.send(Method::GET, path, String::new()).await?;
        serde_json::from_str(&text)
            .map_err(|error| CliError::Failed(format!("the demo service answered {text}: {error}")))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: String,
    ) -> Result<(u16, String), CliError> {
        let failed = |error: reqwest::Error| CliError::Failed(format!("the demo service: {error}"));
        let answer = self
            .client
            .request(method, format!("{}{path}", self.url))
            .header("content-type", "application/json")
            .body(body)
            .send()
            .await
            .map_err(failed)?;
        let status = answer.status().as_u16();
        Ok((status, answer.text().await.map_err(failed)?))
    }
}
