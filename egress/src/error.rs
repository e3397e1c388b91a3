//! Why a call got no answer, and whether another try can help.

use std::{error::Error, io, net::IpAddr};

use undolog_core::{fn_body::ResolveError, retry::CallOutcome};

/// A call that is not made, whatever is tried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each says it of itself")]
pub enum Refused {
    #[error("the address {address} is not allowed ({what})")]
    Address { address: IpAddr, what: &'static str },
    #[error("plain HTTP and ports other than 443 are only for hosts that --allow-egress lists")]
    NotListed,
    #[error("the host has no address")]
    NoAddress,
    #[error("the URL cannot be used: {0}")]
    Url(String),
    #[error("the header {0:?} cannot be sent")]
    Header(String),
    #[error("the method cannot be sent")]
    Method,
    #[error(transparent)]
    Unresolved(#[from] ResolveError),
    #[error("the secret {0:?} is not set in this worker")]
    Secret(String),
    #[error("the secret {name:?} cannot be read: {why}")]
    SecretUnreadable { name: String, why: io::ErrorKind },
}

/// Whether a failed call never left this process: nothing was sent, so nothing was changed there.
pub(crate) fn is_unsent(error: &reqwest::Error) -> bool {
    let mut at: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(cause) = at {
        if cause.is::<Refused>() || cause.is::<DnsFailed>() {
            return true;
        }
        at = cause.source();
    }
    error.is_connect() || error.is_builder()
}

/// A name that could not be resolved.
#[derive(Debug, thiserror::Error)]
#[error("the host's name could not be resolved: {0}")]
pub(crate) struct DnsFailed(pub(crate) io::Error);

/// What a failed call means, with a text for people, which never names the URL: it can hold a
/// secret.
pub(crate) fn classify(error: reqwest::Error) -> (CallOutcome, String) {
    let error = error.without_url();
    let mut at: Option<&(dyn Error + 'static)> = Some(&error);
    let mut io_kind = None;
    while let Some(cause) = at {
        if let Some(refused) = cause.downcast_ref::<Refused>() {
            return (CallOutcome::Permanent, refused.to_string());
        }
        if let Some(failed) = cause.downcast_ref::<DnsFailed>() {
            return (CallOutcome::Retry, failed.to_string());
        }
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            if let Some(tls) = tls_inside(io) {
                return (CallOutcome::Permanent, format!("TLS: {tls}"));
            }
            io_kind = io_kind.or_else(|| Some(io.kind()));
        }
        if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
            return (CallOutcome::Permanent, format!("TLS: {tls}"));
        }
        at = cause.source();
    }
    if error.is_timeout() && error.is_connect() {
        return (CallOutcome::Retry, NO_CONNECTION.to_owned());
    }
    if error.is_timeout() {
        return (CallOutcome::Retry, TIMED_OUT.to_owned());
    }
    if error.is_builder() {
        return (CallOutcome::Permanent, format!("the request cannot be made: {}", chain(&error)));
    }
    let text = match io_kind {
        Some(io::ErrorKind::ConnectionRefused) => "the connection was refused".to_owned(),
        Some(io::ErrorKind::ConnectionReset) => "the connection was reset".to_owned(),
        _ => format!("no answer: {}", chain(&error)),
    };
    (CallOutcome::Retry, text)
}

/// An io::Error's source is its inner error's source, so the inner one is asked here.
fn tls_inside(error: &io::Error) -> Option<&rustls::Error> {
    let inner = error.get_ref()?;
    inner
        .downcast_ref::<rustls::Error>()
        .or_else(|| inner.downcast_ref::<io::Error>().and_then(tls_inside))
}

/// The text of a call whose host took no connection in time, at any of its addresses.
pub(crate) const NO_CONNECTION: &str = "timed out: no connection to the host";

/// The text of a call that took longer than its deadline.
pub(crate) const TIMED_OUT: &str = "timed out";

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut at = error.source();
    while let Some(cause) = at {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        at = cause.source();
    }
    text
}
