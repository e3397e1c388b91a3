//! One call as it arrived.

use std::time::Instant;

use serde_json::{Value, json};

/// One call as it arrived, and what became of it.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its place in the order of arrival, from 1.
    pub number: u64,
    /// When its head had arrived.
    pub at: Instant,
    /// The method.
    pub method: String,
    /// The path as it was sent, still percent-encoded.
    pub path: String,
    /// The query, without `?`.
    pub query: String,
    /// Names in lower case, values as text.
    pub headers: Vec<(String, String)>,
    /// The body; empty when it was not read.
    pub body: Vec<u8>,
    /// Whether it changed an object; a repeated key changes nothing.
    pub applied: bool,
    /// The status of the answer; `None` while there is none, or when there never was one.
    pub status: Option<u16>,
}

impl Call {
    /// The value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Its idempotency key.
    pub fn key(&self) -> Option<&str> {
        self.header("idempotency-key")
    }

    /// The body as JSON; `Null` when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The last segment of the path.
    pub fn last_segment(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or("")
    }

    /// One line for a failure message.
    pub fn line(&self) -> String {
        let Self { number, method, path, status, .. } = self;
        let body = String::from_utf8_lossy(&self.body[..self.body.len().min(200)]);
        format!("#{number} {method} {path} key={:?} → {status:?} {body}", self.key())
    }

    /// What `GET /calls` shows.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "number": self.number, "method": self.method, "path": self.path, "query": self.query,
            "headers": self.headers, "key": self.key(), "applied": self.applied,
            "status": self.status, "json": self.json(),
            "body": String::from_utf8_lossy(&self.body),
        })
    }
}
