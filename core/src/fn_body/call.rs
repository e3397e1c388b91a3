//! A call that is ready but for its secrets, and the same with them.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Method, form, wire};
use crate::json::{Node, Text};
use crate::template::url::{encode, is_dot_segment};

/// A part of a text that may hold a secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Piece {
    /// Text that stands as it is.
    Text(String),
    /// A secret, by name.
    Secret(String),
    /// A secret that stands in a URL and is percent-encoded there.
    UrlSecret(String),
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Values come from calls: logs show that there is one, never which.
            Self::Text(_) => f.write_str("Text(..)"),
            Self::Secret(name) => write!(f, "Secret({name})"),
            Self::UrlSecret(name) => write!(f, "UrlSecret({name})"),
        }
    }
}

/// How a body's value becomes bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Encoding {
    /// As JSON text.
    Json,
    /// As the fields of a form.
    Form,
}

impl Encoding {
    /// The content type that says so.
    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Form => "application/x-www-form-urlencoded",
        }
    }

    fn encode(self, body: &Node) -> String {
        match self {
            Self::Json => body.to_text_exact(),
            Self::Form => form::encode(body),
        }
    }
}

/// A call with everything filled in but its secrets.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenderedCall {
    /// The method.
    #[serde(with = "wire::method")]
    pub method: Method,
    /// The URL, with secrets as pieces.
    pub url: Vec<Piece>,
    /// The headers, the idempotency key and the content type included.
    pub headers: Vec<(String, Vec<Piece>)>,
    /// The body; a string with a secret shows the secret's placeholder.
    #[serde(with = "wire::body")]
    pub body: Option<Node>,
    /// How the body becomes bytes.
    pub encoding: Encoding,
    /// The strings of the body that hold a secret, by JSON pointer.
    pub body_secrets: Vec<(String, Vec<Piece>)>,
    /// How long the call may take.
    pub timeout_ms: u64,
}

/// A call as it is sent. It holds secrets: it is made by the worker, used, and dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct ResolvedCall {
    /// The method.
    pub method: Method,
    /// The URL.
    pub url: String,
    /// The headers.
    pub headers: Vec<(String, String)>,
    /// The body's bytes, which are text.
    pub body: Option<String>,
    /// How long the call may take.
    pub timeout_ms: u64,
}

/// Why the secrets could not be put in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The worker does not have the secret.
    #[error("the secret {name} is not configured")]
    MissingSecret {
        /// Its name.
        name: String,
    },
    /// The secret cannot stand where the template puts it.
    #[error("a secret cannot stand in {place}")]
    Unusable {
        /// A header's name, or the URL.
        place: String,
    },
}

impl RenderedCall {
    /// The URL for people: secrets as their placeholders.
    #[must_use]
    pub fn shown_url(&self) -> String {
        shown(&self.url)
    }

    /// The headers for people: secrets as their placeholders.
    #[must_use]
    pub fn shown_headers(&self) -> Vec<(String, String)> {
        self.headers.iter().map(|(name, pieces)| (name.clone(), shown(pieces))).collect()
    }

    /// The body for people, as it is sent but for its secrets.
    #[must_use]
    pub fn shown_body(&self) -> Option<String> {
        self.body.as_ref().map(|body| self.encoding.encode(body))
    }

    /// The content type of the body.
    #[must_use]
    pub fn content_type(&self) -> Option<String> {
        let headers = self.shown_headers();
        headers.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type")).map(|h| h.1)
    }

    /// The digest of what an endpoint gets, but for secrets: two calls with the same one are the
    /// same call.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        let mut parts = vec![self.method.as_str().to_owned(), self.shown_url()];
        for (name, value) in self.shown_headers() {
            parts.push(name.to_ascii_lowercase());
            parts.push(value);
        }
        // An empty name is no header's: it stands between the headers and the body.
        parts.push(String::new());
        parts.extend(self.shown_body());
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        *hasher.finalize().as_bytes()
    }

    /// Puts the secrets in.
    ///
    /// # Errors
    /// A secret that does not exist, or that would break the URL or a header.
    pub fn resolve(
        &self,
        secret: &dyn Fn(&str) -> Option<String>,
    ) -> Result<ResolvedCall, ResolveError> {
        let url = join(&self.url, secret)?;
        if self.url.iter().any(|piece| matches!(piece, Piece::UrlSecret(_))) {
            // A secret must not make a part of the path vanish or climb.
            let path = url.split('?').next().unwrap_or_default();
            let path = path.splitn(4, '/').nth(3).unwrap_or_default();
            if path.split('/').any(|part| part.is_empty() || is_dot_segment(part)) {
                return Err(ResolveError::Unusable { place: "the URL".to_owned() });
            }
        }
        let mut headers = Vec::with_capacity(self.headers.len());
        for (name, pieces) in &self.headers {
            let value = join(pieces, secret)?;
            if !is_header_value(&value) {
                return Err(ResolveError::Unusable { place: format!("the header {name}") });
            }
            headers.push((name.clone(), value));
        }
        let mut body = self.body.clone();
        for (pointer, pieces) in &self.body_secrets {
            let text = join(pieces, secret)?;
            if let Some(node) = body.as_mut().and_then(|body| at_pointer(body, pointer)) {
                *node = Node::String(Text::new(text));
            }
        }
        Ok(ResolvedCall {
            method: self.method,
            url,
            headers,
            body: body.map(|body| self.encoding.encode(&body)),
            timeout_ms: self.timeout_ms,
        })
    }
}

impl fmt::Debug for RenderedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RenderedCall").field("method", &self.method).finish_non_exhaustive()
    }
}

impl fmt::Debug for ResolvedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResolvedCall").field("method", &self.method).finish_non_exhaustive()
    }
}

fn shown(pieces: &[Piece]) -> String {
    let mut text = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(piece) => text.push_str(piece),
            Piece::Secret(name) | Piece::UrlSecret(name) => {
                text.push_str(&format!("{{secret:{name}}}"));
            }
        }
    }
    text
}

fn join(pieces: &[Piece], secret: &dyn Fn(&str) -> Option<String>) -> Result<String, ResolveError> {
    let find =
        |name: &String| secret(name).ok_or(ResolveError::MissingSecret { name: name.clone() });
    let mut text = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(piece) => text.push_str(piece),
            Piece::Secret(name) => text.push_str(&find(name)?),
            Piece::UrlSecret(name) => text.push_str(&encode(&find(name)?)),
        }
    }
    Ok(text)
}

/// Whether a text can be a header's value as it is: visible ASCII, spaces and tabs.
pub(super) fn is_header_value(text: &str) -> bool {
    text.bytes().all(|b| b == b'\t' || (b' '..=b'~').contains(&b))
}

fn at_pointer<'a>(node: &'a mut Node, pointer: &str) -> Option<&'a mut Node> {
    let Some(rest) = pointer.strip_prefix('/') else {
        return pointer.is_empty().then_some(node);
    };
    let (step, rest) = match rest.find('/') {
        Some(end) => rest.split_at(end),
        None => (rest, ""),
    };
    let step = step.replace("~1", "/").replace("~0", "~");
    let inner = match node {
        Node::Array(items) => items.get_mut(step.parse::<usize>().ok()?)?,
        Node::Object(members) => {
            let found = members.iter_mut().find(|(key, _)| key.as_str() == step);
            found.map(|(_, value)| value)?
        }
        _ => return None,
    };
    at_pointer(inner, rest)
}
