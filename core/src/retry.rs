//! When a compensation call is tried again, and what an answer's status means.

use crate::limits::{
    BACKOFF_MS_MAX, DEFERRAL_MS_DEFAULT, DEFERRAL_MS_MAX, DEFERRAL_MS_MIN, JITTER_PERCENT_MAX,
};

/// The delay in milliseconds before the `n`-th retry (from 1): min(1 h, base · 2^(n−1)), plus up
/// to 50 % jitter. The backoff is a floor, so jitter only ever adds; `jitter_percent` is the
/// caller's random number.
#[must_use]
pub fn backoff_ms(n: u32, base_ms: u64, jitter_percent: u64) -> u64 {
    let doublings = n.saturating_sub(1).min(63);
    let floor_ms = base_ms.saturating_mul(1 << doublings).min(BACKOFF_MS_MAX);
    floor_ms + floor_ms * jitter_percent.min(JITTER_PERCENT_MAX) / 100
}

/// What an endpoint's answer means for the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum CallOutcome {
    /// Undone.
    Done,
    /// Counted as a failed attempt; try again after the backoff.
    Retry,
    /// Not counted; the endpoint asked to come back later.
    Defer {
        /// How long to wait.
        after_ms: u64,
    },
    /// It will never work: a dead letter at once.
    Permanent,
}

/// Classifies an answer. `done_statuses` are the registration's own; `retry_after_ms` is the
/// answer's Retry-After, if it had a usable one.
#[must_use]
pub fn classify(status: u16, done_statuses: &[u16], retry_after_ms: Option<u64>) -> CallOutcome {
    if (200..300).contains(&status) || done_statuses.contains(&status) {
        return CallOutcome::Done;
    }
    match (status, retry_after_ms) {
        (429, after_ms) => defer(after_ms.unwrap_or(DEFERRAL_MS_DEFAULT)),
        (503, Some(after_ms)) => defer(after_ms),
        (408 | 425 | 500..=599, _) => CallOutcome::Retry,
        _ => CallOutcome::Permanent,
    }
}

const fn defer(after_ms: u64) -> CallOutcome {
    let after_ms = if after_ms < DEFERRAL_MS_MIN {
        DEFERRAL_MS_MIN
    } else if after_ms > DEFERRAL_MS_MAX {
        DEFERRAL_MS_MAX
    } else {
        after_ms
    };
    CallOutcome::Defer { after_ms }
}

/// Reads a Retry-After header that counts seconds. Its other form, a date, would be compared with
/// a clock that is not ours, so it reads as absent.
#[must_use]
pub fn retry_after_ms(header: &str) -> Option<u64> {
    header.trim().parse::<u64>().ok().map(|seconds| seconds.saturating_mul(1000))
}
