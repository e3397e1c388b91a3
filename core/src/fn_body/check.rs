//! What may stand in a header's name.

/// Headers that the HTTP client owns, or that speak to a proxy on the way.
const FORBIDDEN: &[&str] = &[
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
    "expect",
];

/// Whether a text is a header's name that a registration may set.
pub(super) fn is_allowed_header(name: &str) -> bool {
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !name.is_empty()
        && name.len() <= 128
        && name.bytes().all(is_token)
        && !FORBIDDEN.iter().any(|forbidden| name.eq_ignore_ascii_case(forbidden))
}
