//! Organisations as the engine sees them: by name only. What changes them is the owner's.

use crate::{error::StepError, pool::Store};
use uuid::Uuid;

/// Whether a text has the documented form of a slug: `^[a-z0-9-]{2,64}$`.
#[must_use]
pub fn is_slug(text: &str) -> bool {
    (2..=64).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// The id of a slug.
pub async fn id_by_slug(store: &Store, slug: &str) -> Result<Option<Uuid>, StepError> {
    if !is_slug(slug) {
        return Ok(None);
    }
    Ok(sqlx::query_scalar("SELECT undolog_org_by_slug($1)")
        .bind(slug)
        .fetch_one(store.pool())
        .await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_have_the_documented_form() {
        for good in ["ab", "acme", "a-1", &"x".repeat(64)] {
            assert!(is_slug(good), "{good}");
        }
        for bad in ["", "a", "Acme", "a_b", "a b", "ä-ä", &"x".repeat(65)] {
            assert!(!is_slug(bad), "{bad}");
        }
    }
}
