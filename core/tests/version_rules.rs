//! The newest version and the effective tier.

use undolog_core::Tier;
use undolog_core::version::{effective_tier, is_valid, newest, newest_by};

#[test]
fn the_newest_is_by_precedence_and_not_by_text() {
    assert_eq!(newest(["1.9.0", "1.10.0", "1.2.0"]), Some("1.10.0"));
    assert_eq!(newest(["1.0.0-rc.1", "1.0.0", "1.0.0-rc.2"]), Some("1.0.0"));
    assert_eq!(newest(["1.0.0-rc.2", "1.0.0-rc.10"]), Some("1.0.0-rc.10"));
    assert_eq!(newest(["latest", "v2.0.0", "1.0", "0.1.0"]), Some("0.1.0"));
    assert_eq!(newest([]), None);
    assert_eq!(newest_by([("a", "1.0.0"), ("b", "2.0.0")], |row| row.1), Some(("b", "2.0.0")));
}

#[test]
fn versions_are_strict() {
    for version in ["1.0.0", "0.0.0", "1.2.3-rc.1+build.5"] {
        assert!(is_valid(version), "{version}");
    }
    for version in ["", "1", "1.0", "v1.0.0", "1.0.0.0", "01.0.0", " 1.0.0", "1.0.0 ", "1.0.x"] {
        assert!(!is_valid(version), "{version:?}");
    }
}

#[test]
fn the_effective_tier_is_the_highest() {
    use Tier::{Compensable, Irreversible, Safe};
    assert_eq!(effective_tier([Safe, Irreversible, Compensable]), Some(Irreversible));
    assert_eq!(effective_tier([Safe, Compensable]), Some(Compensable));
    assert_eq!(effective_tier([]), None);
}
