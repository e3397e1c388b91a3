//! Where an organisation's notifications go, as far as it can be checked without sending one.

use undolog_core::reason::Reason;

use crate::error::StepError;

/// Bytes of a URL, at most.
const URL_BYTES_MAX: usize = 2048;

/// Refuses a webhook that could never be called. Whether its address may be reached is asked by the
/// worker at each call.
pub(crate) fn check_target(
    url: Option<&Option<String>>,
    secret: Option<&str>,
) -> Result<(), StepError> {
    let refuse = |why: &str| Err(StepError::refuse(Reason::InvalidArgument, why));
    if let Some(Some(url)) = url
        && !is_usable(url)
    {
        return refuse("a webhook's URL begins with https:// or http:// and names a host only");
    }
    let is_name = |name: &str| {
        !name.is_empty()
            && name.len() <= 128
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    if secret.is_some_and(|name| !is_name(name)) {
        return refuse("a secret's name has 1 to 128 letters, digits and underscores");
    }
    Ok(())
}

fn is_usable(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let Some(rest) = rest else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    url.len() <= URL_BYTES_MAX
        && url.bytes().all(|b| b.is_ascii_graphic())
        && !authority.is_empty()
        && !authority.contains('@')
        && !rest.contains('#')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_called_is_taken() {
        let check = |url: &str| check_target(Some(&Some(url.to_owned())), Some("HOOK")).is_ok();
        assert!(check("https://hooks.example/undolog?team=1"));
        assert!(check("http://127.0.0.1:8080/x"));
        for bad in ["", "ftp://x/", "https://", "https://u:p@x/", "https://x/ y", "https://x/#f"] {
            assert!(!check(bad), "{bad}");
        }
        check_target(None, Some("a-b")).unwrap_err();
        check_target(Some(&None), None).unwrap();
    }
}
