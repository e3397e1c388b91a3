//! The one way out: the HTTP client of compensations and upstream tools. It reaches public
//! addresses and what an operator listed, follows no redirect, uses no proxy of the environment,
//! retries nothing by itself, reads a bounded answer and ends by one deadline.

mod address;
mod allow;
mod error;
mod guard;
mod resolve;
mod secrets;

use std::{str::FromStr as _, sync::Arc, time::Duration};

use reqwest::{
    Client, Method, Response,
    header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER},
    redirect,
};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use undolog_core::{
    fn_body::RenderedCall,
    limits::{COMPENSATION_CALL_MS_MAX, KEPT_RESPONSE_BYTES},
    retry::{CallOutcome, classify as classify_status, retry_after_ms},
};
use url::{Host, Url};

pub use allow::{AllowList, Allowed, AllowedError};
pub use secrets::SecretSource;

pub use error::Refused;
use error::{TIMED_OUT, classify, is_unsent};
use guard::guard;
use resolve::{Reach, Resolver};
use secrets::Used;

/// Bytes of an answer that are read at all. An endpoint that sends more is not a compensation.
const READ_BYTES_MAX: usize = 1024 * 1024;
/// How much of an answer is read, and how much of that is kept.
struct Bound {
    read_bytes: usize,
    kept_bytes: usize,
}

/// For an answer that only tells whether the call was done.
const KEPT: Bound = Bound { read_bytes: READ_BYTES_MAX, kept_bytes: KEPT_RESPONSE_BYTES };

/// Bytes of an answer that an error's text quotes.
const QUOTED_BYTES: usize = 2 * 1024;
/// Headers that describe one connection or that the client writes itself.
const OWN_HEADERS: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What the client may reach and where secrets come from.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct EgressOptions {
    /// What is allowed beyond public addresses.
    pub allow: Vec<Allowed>,
    /// Where `{secret:NAME}` is looked up.
    pub secrets: SecretSource,
    /// Certificates (PEM) of authorities to trust besides the public ones.
    pub extra_roots_pem: Vec<u8>,
}

/// One call, with its secrets as references.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Call {
    /// Whose secrets may be used.
    pub org_slug: String,
    /// The call.
    pub rendered: RenderedCall,
    /// Statuses that count as done beside 2xx.
    pub done_statuses: Vec<u16>,
}

/// How far a call came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reached {
    /// Nothing was sent.
    Nothing,
    /// It may have been sent, and there is no whole answer.
    Perhaps,
    /// There is an answer.
    Answered,
}

/// What became of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// What it means for the entry.
    pub outcome: CallOutcome,
    /// How far it came.
    pub reached: Reached,
    /// HTTP status, if there was one.
    pub status: Option<u16>,
    /// What went wrong, for people; never a secret. Can hold NUL.
    pub error: Option<String>,
    /// The first bytes of the body, exactly, with echoed secrets taken out.
    pub response: Vec<u8>,
    /// The body was longer.
    pub response_truncated: bool,
    /// What the answer's Retry-After said.
    pub retry_after_ms: Option<u64>,
}

impl Answer {
    /// A call that got no answer.
    pub fn without_response(
        outcome: CallOutcome,
        reached: Reached,
        error: impl Into<String>,
    ) -> Self {
        Self {
            outcome,
            reached,
            status: None,
            error: Some(error.into()),
            response: Vec::new(),
            response_truncated: false,
            retry_after_ms: None,
        }
    }
}

impl From<Refused> for Answer {
    fn from(refused: Refused) -> Self {
        Self::without_response(CallOutcome::Permanent, Reached::Nothing, refused.to_string())
    }
}

/// The client could not be built.
#[derive(Debug, thiserror::Error)]
#[error("the HTTP client of compensations cannot be built: {0}")]
pub struct EgressError(#[from] reqwest::Error);

/// The client: cheap to clone.
#[derive(Debug, Clone)]
pub struct Egress {
    public: Client,
    allowed_nets: Client,
    listed: Client,
    allow: Arc<AllowList>,
    secrets: SecretSource,
}

impl Egress {
    /// Builds the client.
    ///
    /// # Errors
    /// When the TLS configuration cannot be used.
    pub fn new(options: &EgressOptions) -> Result<Self, EgressError> {
        let allow = Arc::new(AllowList::new(options.allow.clone()));
        let build = |reach| client(Resolver { reach, allow: Arc::clone(&allow) }, options);
        Ok(Self {
            public: build(Reach::Public)?,
            allowed_nets: build(Reach::AllowedNets)?,
            listed: build(Reach::Listed)?,
            secrets: options.secrets.clone(),
            allow,
        })
    }

    /// A secret of an organisation, for what signs with it instead of sending it.
    ///
    /// # Errors
    /// There is no such secret, or it cannot be read.
    pub async fn secret(&self, org_slug: &str, name: &str) -> Result<SecretString, Refused> {
        self.secrets.named(org_slug, name).await
    }

    /// Makes one call, once, and keeps the beginning of the answer.
    pub async fn call(&self, call: &Call) -> Answer {
        self.call_within(call, &KEPT).await
    }

    /// Makes one call, once, and keeps the whole answer; a longer one than `bytes_max` is refused.
    pub async fn call_whole(&self, call: &Call, bytes_max: usize) -> Answer {
        self.call_within(call, &Bound { read_bytes: bytes_max, kept_bytes: bytes_max }).await
    }

    async fn call_within(&self, call: &Call, bound: &Bound) -> Answer {
        let timeout =
            Duration::from_millis(call.rendered.timeout_ms.clamp(1, COMPENSATION_CALL_MS_MAX));
        match tokio::time::timeout(timeout, self.call_unbounded(call, timeout, bound)).await {
            Ok(answer) => answer,
            Err(_) => Answer::without_response(CallOutcome::Retry, Reached::Perhaps, TIMED_OUT),
        }
    }

    async fn call_unbounded(&self, call: &Call, timeout: Duration, bound: &Bound) -> Answer {
        let used = match self.secrets.of_call(&call.org_slug, &call.rendered).await {
            Ok(used) => used,
            Err(refused) => return refused.into(),
        };
        let sent = match self.request(call, timeout, &used) {
            Ok(request) => request.send().await,
            Err(refused) => return refused.into(),
        };
        match sent {
            Ok(response) => read(response, call, &used, bound).await,
            Err(error) => {
                let reached = if is_unsent(&error) { Reached::Nothing } else { Reached::Perhaps };
                let (outcome, text) = classify(error);
                Answer::without_response(outcome, reached, redacted(&used, text))
            }
        }
    }

    fn request(
        &self,
        call: &Call,
        timeout: Duration,
        used: &Used,
    ) -> Result<reqwest::RequestBuilder, Refused> {
        let resolved = call.rendered.resolve(&|name| used.get(name))?;
        let url = usable_url(&resolved.url)?;
        let mut headers = HeaderMap::new();
        for (name, value) in &resolved.headers {
            let (name, value) = header(name, value)?;
            headers.insert(name, value);
        }
        let method =
            Method::from_bytes(resolved.method.as_str().as_bytes()).map_err(|_| Refused::Method)?;
        let client = self.client_for(&url)?;
        let mut request = client.request(method, url).headers(headers).timeout(timeout);
        if let Some(body) = resolved.body {
            request = request.body(body);
        }
        Ok(request)
    }

    /// The client that may reach this URL. A literal address never comes to a resolver, so it is
    /// judged here.
    fn client_for(&self, url: &Url) -> Result<&Client, Refused> {
        let host = url.host_str().unwrap_or_default();
        let port = url.port_or_known_default().unwrap_or_default();
        let (reach, client) = if self.allow.has_service(host, port) {
            (Reach::Listed, &self.listed)
        } else if (url.scheme() == "https" && port == 443) || !guard("egress.https_only") {
            (Reach::Public, &self.public)
        } else {
            (Reach::AllowedNets, &self.allowed_nets)
        };
        match url.host() {
            Some(Host::Ipv4(address)) => reach.check(address.into(), &self.allow)?,
            Some(Host::Ipv6(address)) => reach.check(address.into(), &self.allow)?,
            Some(Host::Domain(_)) => {}
            None => return Err(Refused::NoAddress),
        }
        Ok(client)
    }
}

fn client(resolver: Resolver, options: &EgressOptions) -> Result<Client, reqwest::Error> {
    let mut builder = Client::builder()
        .dns_resolver(Arc::new(resolver))
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .no_proxy()
        .http1_only()
        // A reused connection that turns out dead is the one case in which hyper sends a request
        // again by itself: no connection is kept.
        .pool_max_idle_per_host(0)
        .referer(false)
        .user_agent(concat!("undolog/", env!("CARGO_PKG_VERSION")));
    if !options.extra_roots_pem.is_empty() {
        for root in reqwest::Certificate::from_pem_bundle(&options.extra_roots_pem)? {
            builder = builder.add_root_certificate(root);
        }
    }
    builder.build()
}

fn usable_url(text: &str) -> Result<Url, Refused> {
    // The parser's message does not repeat the text, which can hold a secret.
    let url = Url::parse(text).map_err(|error| Refused::Url(error.to_string()))?;
    if !matches!(url.scheme(), "https" | "http") {
        return Err(Refused::Url("its scheme is neither https nor http".to_owned()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Refused::Url("it names a user or a password".to_owned()));
    }
    Ok(url)
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), Refused> {
    let refuse = || Refused::Header(name.to_owned());
    let lower = name.to_ascii_lowercase();
    if OWN_HEADERS.contains(&lower.as_str()) {
        return Err(refuse());
    }
    let key = HeaderName::from_str(&lower).map_err(|_| refuse())?;
    let mut value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| refuse())?;
    value.set_sensitive(true);
    Ok((key, value))
}

/// Reads an answer up to its bound and says what it means.
async fn read(mut response: Response, call: &Call, used: &Used, bound: &Bound) -> Answer {
    let status = response.status().as_u16();
    let retry_after =
        response.headers().get(RETRY_AFTER).and_then(|v| v.to_str().ok()).and_then(retry_after_ms);
    let mut body = Vec::new();
    let mut reached = Reached::Answered;
    let broken = loop {
        match response.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => break None,
            Err(error) => {
                reached = Reached::Perhaps;
                break Some(classify(error));
            }
        }
        if body.len() > bound.read_bytes {
            let text = format!("oversize answer: more than {} bytes", bound.read_bytes);
            break Some((CallOutcome::Permanent, text));
        }
    };
    let (outcome, error) = judged(status, retry_after, call, broken);
    // Taken out before the cut: a cut through a secret would leave its first half.
    let mut body = used.redact(body);
    let response_truncated = body.len() > bound.kept_bytes;
    body.truncate(bound.kept_bytes);
    let error = error.map(|text| redacted(used, quoted(text, status, &body)));
    Answer {
        outcome,
        reached,
        status: Some(status),
        error,
        response: body,
        response_truncated,
        retry_after_ms: retry_after,
    }
}

fn judged(
    status: u16,
    retry_after: Option<u64>,
    call: &Call,
    broken: Option<(CallOutcome, String)>,
) -> (CallOutcome, Option<String>) {
    if let Some((outcome, text)) = broken {
        return (outcome, Some(text));
    }
    match classify_status(status, &call.done_statuses, retry_after) {
        CallOutcome::Done => (CallOutcome::Done, None),
        outcome if (300..400).contains(&status) => {
            (outcome, Some(format!("HTTP {status}: redirects are not followed")))
        }
        outcome => (outcome, Some(format!("HTTP {status}"))),
    }
}

fn quoted(text: String, status: u16, body: &[u8]) -> String {
    if body.is_empty() || text != format!("HTTP {status}") {
        return text;
    }
    let start = &body[..body.len().min(QUOTED_BYTES)];
    format!("{text}: {}", String::from_utf8_lossy(start).trim_end())
}

fn redacted(used: &Used, text: String) -> String {
    String::from_utf8_lossy(&used.redact(text.into_bytes())).into_owned()
}

#[cfg(test)]
mod tests;
