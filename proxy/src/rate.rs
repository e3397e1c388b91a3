//! One token bucket per key.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Keys that are told apart. The rest shares one bucket, so that invented keys cost no memory.
const KEYS_MAX: usize = 16_384;

/// How fast each key may ask.
#[derive(Debug)]
pub(crate) struct Rates {
    per_second: f64,
    burst: f64,
    hasher: RandomState,
    buckets: Mutex<HashMap<u64, Bucket>>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Rates {
    /// `None`: no limit was asked for.
    pub(crate) fn new(per_second: u32, burst: u32) -> Option<Self> {
        (per_second > 0).then(|| Self {
            per_second: f64::from(per_second),
            burst: f64::from(burst.max(per_second).max(1)),
            hasher: RandomState::new(),
            buckets: Mutex::default(),
        })
    }

    /// Takes a token of this key, or answers when there will be one.
    pub(crate) fn take(&self, key: &[u8]) -> Result<(), Duration> {
        self.take_at(key, Instant::now())
    }

    fn take_at(&self, key: &[u8], now: Instant) -> Result<(), Duration> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let mut id = self.hasher.hash_one(key);
        if !buckets.contains_key(&id) && buckets.len() >= KEYS_MAX {
            buckets.retain(|_, bucket| self.filled(*bucket, now) < self.burst);
            if buckets.len() >= KEYS_MAX {
                id = 0;
            }
        }
        let full = Bucket { tokens: self.burst, at: now };
        let bucket = buckets.entry(id).or_insert(full);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_spends_its_burst_and_earns_it_back() {
        let rates = Rates::new(2, 3).expect("a limit");
        let start = Instant::now();
        for _ in 0..3 {
            assert_eq!(rates.take_at(b"a", start), Ok(()));
        }
        assert_eq!(rates.take_at(b"a", start), Err(Duration::from_millis(500)));
        assert_eq!(rates.take_at(b"b", start), Ok(()));
        assert_eq!(rates.take_at(b"a", start + Duration::from_millis(500)), Ok(()));
        assert!(rates.take_at(b"a", start + Duration::from_millis(500)).is_err());
        assert!(Rates::new(0, 9).is_none());
    }

    #[test]
    fn invented_keys_share_what_is_left() {
        let rates = Rates::new(1, 1).expect("a limit");
        let start = Instant::now();
        for key in 0..KEYS_MAX + 10 {
            // The first ones spend their bucket, so that none of them can be forgotten.
            let _spent = rates.take_at(&key.to_le_bytes(), start);
        }
        let buckets = rates.buckets.lock().expect("the buckets");
        assert!(buckets.len() <= KEYS_MAX + 1, "{}", buckets.len());
    }
}
