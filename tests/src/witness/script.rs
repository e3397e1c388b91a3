//! How the witness misbehaves.

use std::time::Duration;

use serde::Deserialize;
use tokio::sync::watch;

/// What happens instead of, or before, the ordinary answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// This status with a JSON error body; nothing is applied.
    Status(u16),
    /// The call is applied, but this status is answered.
    AppliedThenStatus(u16),
    /// This status with a `Retry-After` of so many seconds; nothing is applied.
    RetryAfter(u16, u64),
    /// This status, these headers and this body; nothing is applied.
    Answer(u16, Vec<(String, String)>, String),
    /// 302 to this address; nothing is applied.
    Redirect(String),
    /// The ordinary answer, later.
    #[serde(with = "millis")]
    Delay(Duration),
    /// Never an answer. Nothing is applied.
    Hang,
    /// The call is applied; never an answer.
    AppliedThenHang,
    /// The ordinary answer, one byte of its body at a time with this pause.
    #[serde(with = "millis")]
    Trickle(Duration),
    /// 200 and a body that never ends.
    Endless,
    /// This status and a body of so many bytes; nothing is applied.
    Huge(u16, usize),
    /// The connection is closed without an answer. Nothing is applied, nothing is read.
    Close,
    /// The call is applied, then the connection is closed without an answer.
    AppliedThenClose,
    /// The ordinary answer, when the gate is opened.
    #[serde(skip)]
    Hold(Gate),
    /// This status, when the gate is opened; nothing is applied.
    #[serde(skip)]
    HoldThenStatus(Gate, u16),
}

/// An [`Act`] for the calls of a route.
#[derive(Clone, Debug, Deserialize)]
pub struct Script {
    /// The path begins with this.
    pub route: String,
    /// For how many calls; `None`: for all.
    #[serde(default)]
    pub times: Option<u32>,
    /// What happens.
    pub act: Act,
}

impl Script {
    /// For every call.
    pub fn always(route: &str, act: Act) -> Self {
        Self { route: route.to_owned(), times: None, act }
    }

    /// For the next call only.
    pub fn once(route: &str, act: Act) -> Self {
        Self::times(route, 1, act)
    }

    /// For the next `times` calls.
    pub fn times(route: &str, times: u32, act: Act) -> Self {
        Self { route: route.to_owned(), times: Some(times), act }
    }
}

/// Holds calls until it is opened. Clones are the same gate.
#[derive(Clone, Debug)]
pub struct Gate(std::sync::Arc<watch::Sender<bool>>);

impl Gate {
    /// A closed gate.
    #[expect(clippy::new_without_default, reason = "a gate is made closed on purpose")]
    pub fn new() -> Self {
        Self(std::sync::Arc::new(watch::channel(false).0))
    }

    /// Lets all held calls go, and all later ones.
    pub fn open(&self) {
        self.0.send_replace(true);
    }

    pub(crate) async fn pass(&self) {
        let mut open = self.0.subscribe();
        // The sender lives in `self`, so the wait ends only when the gate is open.
        let _opened = open.wait_for(|open| *open).await;
    }
}

/// Durations as milliseconds.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer};

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}
