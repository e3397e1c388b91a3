//! Backoff and the meaning of statuses.

use proptest::prelude::*;
use undolog_core::limits::{BACKOFF_MS_MAX, DEFERRAL_MS_DEFAULT, DEFERRAL_MS_MAX, DEFERRAL_MS_MIN};
use undolog_core::retry::{CallOutcome, backoff_ms, classify, retry_after_ms};

use CallOutcome::{Defer, Done, Permanent, Retry};

#[test]
fn every_status() {
    for status in 0..=999 {
        let expected = match status {
            200..=299 | 404 | 410 => Done,
            408 | 425 | 500..=599 => Retry,
            429 => Defer { after_ms: DEFERRAL_MS_DEFAULT },
            _ => Permanent,
        };
        assert_eq!(classify(status, &[404, 410], None), expected, "{status}");
    }
}

#[test]
fn only_429_and_503_defer() {
    for status in 100..=599 {
        let is_deferred = matches!(classify(status, &[], Some(5_000)), Defer { after_ms: 5_000 });
        assert_eq!(is_deferred, matches!(status, 429 | 503), "{status}");
    }
    assert_eq!(classify(503, &[], None), Retry);
    for status in [429, 503] {
        assert_eq!(classify(status, &[status], Some(5_000)), Done);
        let longest = Defer { after_ms: DEFERRAL_MS_MAX };
        assert_eq!(classify(status, &[], Some(u64::MAX)), longest);
        assert_eq!(classify(status, &[], Some(0)), Defer { after_ms: DEFERRAL_MS_MIN });
    }
}

#[test]
fn retry_after_counts_seconds() {
    assert_eq!(retry_after_ms(" 120 "), Some(120_000));
    assert_eq!(retry_after_ms("99999999999999999999"), None);
    assert_eq!(retry_after_ms("18446744073709551615"), Some(u64::MAX));
    for text in ["", "-1", "1.5", "Wed, 21 Oct 2026 07:28:00 GMT"] {
        assert_eq!(retry_after_ms(text), None, "{text:?}");
    }
}

#[test]
fn backoff_doubles_up_to_an_hour() {
    let delays: Vec<_> = (1..=5).map(|n| backoff_ms(n, 1_000, 0)).collect();
    assert_eq!(delays, [1_000, 2_000, 4_000, 8_000, 16_000]);
    assert_eq!(backoff_ms(0, 1_000, 0), 1_000);
    assert_eq!(backoff_ms(13, 1_000, 0), BACKOFF_MS_MAX);
    assert_eq!(backoff_ms(1, 1_000, 50), 1_500);
    assert_eq!(backoff_ms(1, 0, 50), 0);
    assert_eq!(backoff_ms(u32::MAX, u64::MAX, u64::MAX), BACKOFF_MS_MAX + BACKOFF_MS_MAX / 2);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_backoff_is_a_floor(n in any::<u32>(), base_ms in any::<u64>(), jitter in any::<u64>()) {
        let floor_ms = backoff_ms(n, base_ms, 0);
        let delay_ms = backoff_ms(n, base_ms, jitter);
        prop_assert!(delay_ms >= floor_ms && delay_ms <= floor_ms + floor_ms / 2);
        prop_assert!(floor_ms >= base_ms.min(BACKOFF_MS_MAX) && floor_ms <= BACKOFF_MS_MAX);
        prop_assert!(backoff_ms(n.saturating_add(1), base_ms, 0) >= floor_ms);
    }
}
