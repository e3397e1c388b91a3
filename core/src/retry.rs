//! When a compensation call is tried again, and what an answer's status means.

use crate::limits::{
    BACKOFF_MS_MAX, BACKOFF_MS_MIN, DEFERRAL_MS_DEFAULT, DEFERRAL_MS_MAX, DEFERRAL_MS_MIN,
    JITTER_PERCENT_MAX,
};

/// The delay in milliseconds before the `n`-th retry (from 1): min(1 h, base · 2^(n−1)), plus up
/// to 50 % jitter. The backoff is a floor, so jitter only ever adds, and a base is a tenth of a
/// second at least; `jitter_percent` is the caller's random number.
#[must_use]
pub fn backoff_ms(n: u32, base_ms: u64, jitter_percent: u64) -> u64 {
    let doublings = n.saturating_sub(1).min(63);
    let base_ms = base_ms.max(BACKOFF_MS_MIN);
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

/// What a status means that is neither a success nor named by a registration. `retry_after_ms` is
/// the answer's Retry-After, if it had one.
pub(crate) fn by_status(status: u16, retry_after_ms: Option<u64>) -> CallOutcome {
    match (status, retry_after_ms) {
        (429, after_ms) => defer(after_ms.unwrap_or(DEFERRAL_MS_DEFAULT)),
        (503, Some(after_ms)) => defer(after_ms),
        (408 | 425 | 500..=599, _) => CallOutcome::Retry,
        _ => CallOutcome::Permanent,
    }
}

/// Whether an endpoint that answers with this status says that it has not carried the call out.
/// What a gateway says on its own (a time-out, a bad answer, a status that no standard knows) is
/// not the endpoint's word: the call may go on behind it.
#[must_use]
pub const fn says_not_done(status: u16) -> bool {
    matches!(status, 400..=511) && !matches!(status, 408 | 502 | 504)
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

/// Reads a Retry-After header. It counts seconds, or names a time; a time is compared with the
/// answer's own `Date`, so that no clock of ours decides. What cannot be read still asks to come
/// back later: that is the default deferral. Only an empty header says nothing.
#[must_use]
pub fn retry_after_ms(header: &str, date: Option<&str>) -> Option<u64> {
    let text = header.trim();
    if text.is_empty() {
        return None;
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit is a very long time, not an unreadable one.
        let seconds = text.parse::<u64>().unwrap_or(u64::MAX);
        return Some(seconds.saturating_mul(1000));
    }
    let at = httpdate::parse_http_date(text).ok();
    let now = date.and_then(|date| httpdate::parse_http_date(date.trim()).ok());
    Some(match (at, now) {
        (Some(at), Some(now)) => {
            let wait = at.duration_since(now).unwrap_or_default();
            u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
        }
        _ => DEFERRAL_MS_DEFAULT,
    })
}
