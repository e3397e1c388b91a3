//! The API key that a request presents.

/// Two keys that differ, or a header that cannot hold one: it would be a guess which is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request does not present one API key")]
pub struct NotOneKey;

/// The key of `x-api-key` or of `authorization: Bearer`; empty headers count as none. A header that
/// is no printable text is `None` in the iterators.
pub fn presented_key<'a>(
    plain: impl Iterator<Item = Option<&'a str>>,
    authorization: impl Iterator<Item = Option<&'a str>>,
) -> Result<Option<&'a str>, NotOneKey> {
    let plain = plain.map(|value| value.map(str::trim));
    let bearers = authorization.map(|value| value.map(|value| bearer(value.trim())));
    let mut found = None;
    for key in plain.chain(bearers) {
        let key = key.ok_or(NotOneKey)?;
        if key.is_empty() || found == Some(key) {
            continue;
        }
        if found.replace(key).is_some() {
            return Err(NotOneKey);
        }
    }
    Ok(found)
}

fn bearer(value: &str) -> &str {
    match value.split_once(' ') {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case("bearer") => key.trim(),
        // Another scheme is a credential that we do not know, not none.
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_by_either_header_and_only_one_key() {
        let key = |plain: &[&'static str], bearer: &[&'static str]| {
            presented_key(plain.iter().copied().map(Some), bearer.iter().copied().map(Some))
        };
        assert_eq!(key(&[], &[]), Ok(None));
        assert_eq!(key(&[""], &[" "]), Ok(None));
        assert_eq!(key(&["k"], &[]), Ok(Some("k")));
        for form in ["Bearer k", "bearer k", "BEARER  k", " Bearer k "] {
            assert_eq!(key(&[], &[form]), Ok(Some("k")), "{form}");
            assert_eq!(key(&["k"], &[form]), Ok(Some("k")), "{form}");
        }
        assert_eq!(key(&["other"], &["Bearer k"]), Err(NotOneKey));
        assert_eq!(key(&[], &["Basic dTpw"]), Ok(Some("Basic dTpw")));
        assert_eq!(presented_key([None].into_iter(), [].into_iter()), Err(NotOneKey));
    }
}
