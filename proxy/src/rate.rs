//! One token bucket per key or address.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use undolog_core::reason::{Reason, Refusal};

use crate::error::Refused;

/// Buckets that are kept. Where more are needed the rest shares one, so that memory is bounded.
const KEYS_MAX: usize = 16_384;
/// The shortest time between two looks for buckets that are full again.
const CLEAN_EVERY: Duration = Duration::from_secs(1);

/// How fast each key may ask.
#[derive(Debug)]
pub(crate) struct Rates {
    per_second: f64,
    burst: f64,
    buckets: Mutex<Buckets>,
}

#[derive(Debug, Default)]
struct Buckets {
    by_key: HashMap<u64, Bucket>,
    /// Whoever finds no room.
    rest: Option<Bucket>,
    cleaned: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Rates {
    /// `None`: no limit was asked for.
    pub(crate) fn new(per_second: u32, burst: u32) -> Option<Self> {
        (per_second > 0).then(|| Self::of(per_second, burst))
    }

    /// So many a second, which is not zero, and so many in a row.
    pub(crate) fn of(per_second: u32, burst: u32) -> Self {
        Self {
            per_second: f64::from(per_second),
            burst: f64::from(burst.max(per_second).max(1)),
            buckets: Mutex::default(),
        }
    }

    /// Takes a token of this key, or answers when there will be one.
    pub(crate) fn take(&self, key: u64) -> Result<(), Duration> {
        self.take_at(key, Instant::now())
    }

    /// Whether there is a token of this key.
    pub(crate) fn has_token(&self, key: u64) -> bool {
        let now = Instant::now();
        let buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        buckets.by_key.get(&key).is_none_or(|bucket| self.filled(*bucket, now) >= 1.0)
    }

    fn take_at(&self, key: u64, now: Instant) -> Result<(), Duration> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !buckets.by_key.contains_key(&key);
        if is_new && buckets.by_key.len() >= KEYS_MAX {
            let is_due = |at| now.saturating_duration_since(at) >= CLEAN_EVERY;
            if buckets.cleaned.is_none_or(is_due) {
                buckets.cleaned = Some(now);
                buckets.by_key.retain(|_, bucket| self.filled(*bucket, now) < self.burst);
            }
        }
        let full = Bucket { tokens: self.burst, at: now };
        let bucket = if is_new && buckets.by_key.len() >= KEYS_MAX {
            buckets.rest.get_or_insert(full)
        } else {
            buckets.by_key.entry(key).or_insert(full)
        };
        let tokens = self.filled(*bucket, now);
        let enough = tokens >= 1.0;
        *bucket = Bucket { tokens: if enough { tokens - 1.0 } else { tokens }, at: now };
        if enough {
            return Ok(());
        }
        Err(Duration::from_secs_f64((1.0 - tokens) / self.per_second))
    }

    fn filled(&self, bucket: Bucket, now: Instant) -> f64 {
        let since = now.saturating_duration_since(bucket.at).as_secs_f64();
        (bucket.tokens + since * self.per_second).min(self.burst)
    }
}

/// The refusal of a caller that asks faster than it may.
pub(crate) fn too_fast(wait: Duration) -> Refused {
    let mut refused = Refused::from(Refusal::new(Reason::RateLimited));
    refused.retry_after_ms = u64::try_from(wait.as_millis()).ok().map(|ms| ms.max(1));
    refused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_spends_its_burst_and_earns_it_back() {
        let rates = Rates::new(2, 3).expect("a limit");
        let start = Instant::now();
        for _ in 0..3 {
            assert_eq!(rates.take_at(1, start), Ok(()));
        }
        assert_eq!(rates.take_at(1, start), Err(Duration::from_millis(500)));
        assert_eq!(rates.take_at(2, start), Ok(()));
        assert_eq!(rates.take_at(1, start + Duration::from_millis(500)), Ok(()));
        assert!(rates.take_at(1, start + Duration::from_millis(500)).is_err());
        assert!(Rates::new(0, 9).is_none());
    }

    #[test]
    fn invented_keys_share_what_is_left() {
        let rates = Rates::new(1, 1).expect("a limit");
        let start = Instant::now();
        for key in 0..KEYS_MAX as u64 + 10 {
            // The first ones spend their bucket, so that none of them can be forgotten.
            let _spent = rates.take_at(key, start);
        }
        let buckets = rates.buckets.lock().expect("the buckets");
        assert!(buckets.by_key.len() <= KEYS_MAX, "{}", buckets.by_key.len());
    }
}
