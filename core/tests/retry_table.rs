//! Backoff and the meaning of statuses.

use proptest::prelude::*;
use undolog_core::answer::{Heard, Rules};
use undolog_core::limits::{BACKOFF_MS_MAX, DEFERRAL_MS_DEFAULT, DEFERRAL_MS_MAX, DEFERRAL_MS_MIN};
use undolog_core::retry::{CallOutcome, backoff_ms, retry_after_ms, says_not_done};

use CallOutcome::{Defer, Done, Permanent, Retry};

fn judge(rules: &Rules, status: u16, retry_after_ms: Option<u64>) -> CallOutcome {
    rules.judge(&Heard { status, retry_after_ms, body: b"" })
}

fn done(statuses: &[u16]) -> Rules {
    Rules { done_statuses: statuses.to_vec(), ..Rules::default() }
}

#[test]
fn every_status() {
    for status in 0..=999 {
        let expected = match status {
            200..=299 | 404 | 410 => Done,
            408 | 425 | 500..=599 => Retry,
            429 => Defer { after_ms: DEFERRAL_MS_DEFAULT },
            _ => Permanent,
        };
        assert_eq!(judge(&done(&[404, 410]), status, None), expected, "{status}");
    }
}

#[test]
fn only_429_and_503_defer() {
    for rules in [done(&[]), Rules { retry_statuses: vec![429, 503], ..Rules::default() }] {
        for status in 100..=599 {
            let judged = judge(&rules, status, Some(5_000));
            let is_deferred = matches!(judged, Defer { after_ms: 5_000 });
            assert_eq!(is_deferred, matches!(status, 429 | 503), "{status}");
        }
    }
    assert_eq!(judge(&done(&[]), 503, None), Retry);
    for status in [429, 503] {
        assert_eq!(judge(&done(&[status]), status, Some(5_000)), Done);
        let longest = Defer { after_ms: DEFERRAL_MS_MAX };
        assert_eq!(judge(&done(&[]), status, Some(u64::MAX)), longest);
        let shortest = Defer { after_ms: DEFERRAL_MS_MIN };
        assert_eq!(judge(&done(&[]), status, Some(0)), shortest);
    }
}

#[test]
fn while_a_key_is_in_use_a_conflict_is_no_refusal() {
    let free = Rules::default();
    let in_use = Rules { key_may_be_in_use: true, ..Rules::default() };
    for status in 100..=599 {
        let expected = match status {
            409 | 423 => Retry,
            _ => judge(&free, status, None),
        };
        assert_eq!(judge(&in_use, status, None), expected, "{status}");
    }
    assert_eq!(judge(&free, 409, None), Permanent);
    // Whoever lists it says that it means done; a condition can tell the two apart.
    let listed = Rules { key_may_be_in_use: true, ..done(&[409]) };
    assert_eq!(judge(&listed, 409, None), Done);
}

#[test]
fn a_registration_names_statuses_that_are_worth_another_try() {
    let rules = Rules { retry_statuses: vec![202, 409], ..Rules::default() };
    assert_eq!(judge(&rules, 202, None), Retry);
    assert_eq!(judge(&rules, 409, Some(5_000)), Retry);
    assert_eq!((judge(&rules, 200, None), judge(&rules, 423, None)), (Done, Permanent));
}

#[test]
fn a_gateways_word_is_not_the_endpoints() {
    for status in [400, 404, 409, 429, 499, 500, 503, 511] {
        assert!(says_not_done(status), "{status}");
    }
    for status in [200, 202, 301, 399, 408, 502, 504, 520, 524, 599] {
        assert!(!says_not_done(status), "{status}");
    }
}

#[test]
fn retry_after_counts_seconds_or_names_a_time() {
    let date = Some("Wed, 21 Oct 2026 07:28:00 GMT");
    assert_eq!(retry_after_ms(" 120 ", None), Some(120_000));
    assert_eq!(retry_after_ms("18446744073709551615", None), Some(u64::MAX));
    assert_eq!(retry_after_ms("99999999999999999999", None), Some(u64::MAX), "20 digits");
    for (at, wait_ms) in [
        ("Wed, 21 Oct 2026 07:28:06 GMT", 6_000),
        ("Wednesday, 21-Oct-26 07:29:00 GMT", 60_000),
        ("Wed Oct 21 08:28:00 2026", 3_600_000),
        ("Wed, 21 Oct 2026 07:27:00 GMT", 0),
    ] {
        assert_eq!(retry_after_ms(at, date), Some(wait_ms), "{at}");
    }
    // A time without one to compare it with, and what nobody can read, still ask for a pause.
    for (text, date) in [
        ("Wed, 21 Oct 2026 07:28:06 GMT", None),
        ("Wed, 21 Oct 2026 07:28:06 GMT", Some("yesterday")),
        ("-1", date),
        ("1.5", date),
        ("soon", date),
    ] {
        assert_eq!(retry_after_ms(text, date), Some(DEFERRAL_MS_DEFAULT), "{text:?}");
    }
    assert_eq!(retry_after_ms(" ", date), None);
}

#[test]
fn backoff_doubles_up_to_an_hour() {
    let delays: Vec<_> = (1..=5).map(|n| backoff_ms(n, 1_000, 0)).collect();
    assert_eq!(delays, [1_000, 2_000, 4_000, 8_000, 16_000]);
    assert_eq!(backoff_ms(0, 1_000, 0), 1_000);
    assert_eq!(backoff_ms(13, 1_000, 0), BACKOFF_MS_MAX);
    assert_eq!(backoff_ms(1, 1_000, 50), 1_500);
    assert_eq!(backoff_ms(1, 0, 50), 150);
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
