//! The one way out: the HTTP client of compensations and upstream tools. It reaches public
//! addresses and what an operator listed, follows no redirect, uses no proxy of the environment,
//! retries nothing by itself, reads a bounded answer and ends by one deadline.

mod address;
mod allow;
mod body;
mod error;
mod guard;
mod resolve;
mod secrets;

use std::{collections::HashMap, str::FromStr as _, sync::Arc, time::Duration};

use reqwest::{
    Client, Method, Response,
    header::{
        ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, DATE, HeaderMap,
        HeaderName, HeaderValue, RETRY_AFTER,
    },
    redirect,
};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use undolog_core::{
    answer::{Heard, Rules},
    fn_body::RenderedCall,
    limits::{COMPENSATION_CALL_MS_MAX, KEPT_RESPONSE_BYTES},
    retry::{CallOutcome, retry_after_ms, says_not_done},
};
use url::{Host, Url};

pub use allow::{AllowList, Allowed, AllowedError, Target};
pub use secrets::SecretSource;

use body::{Undecoded, decoded};
pub use error::Refused;
use error::{TIMED_OUT, classify, is_unsent};
use guard::guard;
use resolve::{Names, Reach, Resolver};
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
    /// What an answer means.
    pub rules: Rules,
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
    /// The answer's Content-Type.
    pub content_type: Option<String>,
}

impl Answer {
    /// Whether the endpoint may have carried the call out, or may still: not when nothing was sent,
    /// and not when it says otherwise.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        self.reached != Reached::Nothing && !self.status.is_some_and(says_not_done)
    }

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
            content_type: None,
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

/// How long a connection may take, all addresses of its host together. A call takes the longest
/// that leaves it [`REST_PERCENT`] of its own time. The addresses share it, so that one that does
/// not answer hides no other.
const CONNECT_MS: [u64; 7] = [9_600, 4_800, 2_400, 1_200, 600, 300, 150];
/// What of a call's time is left after the connection, at least.
const REST_PERCENT: u64 = 40;

/// One client for each time that a connection may take.
#[derive(Debug, Clone)]
struct Clients(Vec<Client>);

impl Clients {
    fn build(resolver: &Resolver, options: &EgressOptions) -> Result<Self, EgressError> {
        let build = |ms: &u64| client(resolver.clone(), Duration::from_millis(*ms), options);
        Ok(Self(CONNECT_MS.iter().map(build).collect::<Result<_, _>>()?))
    }

    fn of(&self, timeout: Duration) -> &Client {
        let most = timeout.as_millis() * u128::from(100 - REST_PERCENT) / 100;
        let found = CONNECT_MS.iter().position(|ms| u128::from(*ms) <= most);
        &self.0[found.unwrap_or(CONNECT_MS.len() - 1)]
    }
}

/// The client: cheap to clone.
#[derive(Debug, Clone)]
pub struct Egress {
    /// For organisations that no entry of the list names.
    others: Reachable,
    by_org: HashMap<String, Reachable>,
    secrets: SecretSource,
}

/// What one organisation may reach, and the clients that reach it.
#[derive(Debug, Clone)]
struct Reachable {
    public: Clients,
    allowed_nets: Clients,
    listed: Clients,
    allow: Arc<AllowList>,
}

impl Reachable {
    fn new(org: Option<&str>, options: &EgressOptions, names: &Names) -> Result<Self, EgressError> {
        let allow = Arc::new(AllowList::of(org, &options.allow));
        let build = |reach| {
            let (allow, names) = (Arc::clone(&allow), names.clone());
            Clients::build(&Resolver { reach, allow, names }, options)
        };
        Ok(Self {
            public: build(Reach::Public)?,
            allowed_nets: build(Reach::AllowedNets)?,
            listed: build(Reach::Listed)?,
            allow,
        })
    }
}

impl Egress {
    /// Builds the client.
    ///
    /// # Errors
    /// When the TLS configuration cannot be used.
    pub fn new(options: &EgressOptions) -> Result<Self, EgressError> {
        Self::with_names(options, &Names::System)
    }

    fn with_names(options: &EgressOptions, names: &Names) -> Result<Self, EgressError> {
        let mut by_org = HashMap::new();
        for org in options.allow.iter().filter_map(|entry| entry.org.as_ref()) {
            if !by_org.contains_key(org) {
                by_org.insert(org.clone(), Reachable::new(Some(org), options, names)?);
            }
        }
        Ok(Self {
            others: Reachable::new(None, options, names)?,
            by_org,
            secrets: options.secrets.clone(),
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
        if resolved.body.is_none() && matches!(method, Method::POST | Method::PUT | Method::PATCH) {
            // Servers want to hear that nothing follows (411 otherwise).
            headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        // Asked for as it is: what comes compressed all the same is decoded.
        headers.entry(ACCEPT_ENCODING).or_insert(HeaderValue::from_static("identity"));
        let reachable = self.by_org.get(&call.org_slug).unwrap_or(&self.others);
        let client = reachable.clients_for(&url)?.of(timeout);
        let mut request = client.request(method, url).headers(headers).timeout(timeout);
        if let Some(body) = resolved.body {
            request = request.body(body);
        }
        Ok(request)
    }
}

impl Reachable {
    /// The clients that may reach this URL. A literal address never comes to a resolver, so it is
    /// judged here.
    fn clients_for(&self, url: &Url) -> Result<&Clients, Refused> {
        let host = url.host_str().unwrap_or_default();
        let port = url.port_or_known_default().unwrap_or_default();
        let (reach, clients) = if self.allow.has_service(host, port) {
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
        Ok(clients)
    }
}

fn client(
    resolver: Resolver,
    connect: Duration,
    options: &EgressOptions,
) -> Result<Client, reqwest::Error> {
    let mut builder = Client::builder()
        .dns_resolver(Arc::new(resolver))
        .connect_timeout(connect)
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
    let headers = response.headers();
    let header = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let retry_after =
        header(RETRY_AFTER).and_then(|retry_after| retry_after_ms(retry_after, header(DATE)));
    let content_type = header(CONTENT_TYPE).map(str::to_owned);
    let encodings = header(CONTENT_ENCODING).unwrap_or_default().to_owned();
    let mut body = Vec::new();
    let mut reached = Reached::Answered;
    let mut broken = loop {
        match response.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => break None,
            Err(error) => {
                reached = Reached::Perhaps;
                break Some(classify(error));
            }
        }
        if body.len() > bound.read_bytes {
            break Some(oversize(bound));
        }
    };
    if broken.is_none() {
        body = decoded(body, &encodings, bound.read_bytes).unwrap_or_else(|(raw, why)| {
            if why == Undecoded::TooLarge {
                broken = Some(oversize(bound));
            }
            raw
        });
    }
    let (outcome, error) = judged(status, retry_after, &body, call, broken);
    // Taken out before the cut: a cut through a secret would leave its first half.
    let mut body = used.redact(body);
    let response_truncated = body.len() > bound.kept_bytes;
    body.truncate(bound.kept_bytes);
    let error = error.map(|text| redacted(used, quoted(text, &body)));
    Answer {
        outcome,
        reached,
        status: Some(status),
        error,
        response: body,
        response_truncated,
        retry_after_ms: retry_after,
        content_type,
    }
}

fn oversize(bound: &Bound) -> (CallOutcome, String) {
    let text = format!("oversize answer: more than {} bytes", bound.read_bytes);
    (CallOutcome::Permanent, text)
}

/// What a whole answer means, and a text for people when it is not a success. The text of a status
/// alone is followed by what the endpoint said.
fn judged(
    status: u16,
    retry_after_ms: Option<u64>,
    body: &[u8],
    call: &Call,
    broken: Option<(CallOutcome, String)>,
) -> (CallOutcome, Option<Said>) {
    if let Some((outcome, text)) = broken {
        return (outcome, Some(Said::Whole(text)));
    }
    match call.rules.judge(&Heard { status, retry_after_ms, body }) {
        CallOutcome::Done => (CallOutcome::Done, None),
        outcome if (300..400).contains(&status) => {
            (outcome, Some(Said::Whole(format!("HTTP {status}: redirects are not followed"))))
        }
        outcome if call.rules.doubts(status) => {
            (outcome, Some(Said::Quoting(format!("HTTP {status}, but done_when does not hold"))))
        }
        outcome => (outcome, Some(Said::Quoting(format!("HTTP {status}")))),
    }
}

/// A text about an answer.
enum Said {
    /// It says everything.
    Whole(String),
    /// The body follows it.
    Quoting(String),
}

fn quoted(said: Said, body: &[u8]) -> String {
    match said {
        Said::Quoting(text) if !body.is_empty() => {
            let start = &body[..body.len().min(QUOTED_BYTES)];
            format!("{text}: {}", String::from_utf8_lossy(start).trim_end())
        }
        Said::Whole(text) | Said::Quoting(text) => text,
    }
}

fn redacted(used: &Used, text: String) -> String {
    String::from_utf8_lossy(&used.redact(text.into_bytes())).into_owned()
}

#[cfg(test)]
mod tests;
