//! Versions of tools and compensations: which one is the newest, and which tier a name has.

use semver::Version;

use crate::Tier;

/// The documented version of a registration that names none.
pub const DEFAULT_VERSION: &str = "1.0.0";

/// Whether a text is a strict semantic version.
#[must_use]
pub fn is_valid(version: &str) -> bool {
    Version::parse(version).is_ok()
}

/// The newest of some versions by semver precedence: a pre-release is lower than its release.
/// Texts that are no versions are passed over.
#[must_use]
pub fn newest<'a>(versions: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    newest_by(versions, |version| *version)
}

/// The newest of some rows by the version that each of them has.
#[must_use]
pub fn newest_by<T>(rows: impl IntoIterator<Item = T>, version: impl Fn(&T) -> &str) -> Option<T> {
    rows.into_iter()
        .filter_map(|row| Some((Version::parse(version(&row)).ok()?, row)))
        .max_by(|(a, _), (b, _)| a.cmp(b))
        .map(|(_, row)| row)
}

/// The tier of a name: the highest over its active versions, `None` when there is none.
#[must_use]
pub fn effective_tier(active_versions: impl IntoIterator<Item = Tier>) -> Option<Tier> {
    active_versions.into_iter().max()
}
