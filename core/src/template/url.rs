//! An endpoint whose path and query are templates, and whose scheme, host and port never are.

use std::fmt::Write as _;

use super::{Lookup, Placeholder, RenderError, Segment, Source, Template, TemplateError, Value};
use crate::fn_body::Piece;
use crate::json::Node;

/// A parsed endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UrlTemplate {
    /// `https://host:port`, literally.
    origin: String,
    /// The path's parts between slashes, without the first slash.
    path: Vec<Template>,
    query: Option<Template>,
}

/// Why an endpoint is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Neither http nor https, or no URL at all.
    #[error("the endpoint must start with http:// or https://")]
    Scheme,
    /// A host that is empty, malformed, or not written out.
    #[error("the endpoint's host and port must be written out, without user or placeholder")]
    Authority,
    /// A character that a URL cannot hold.
    #[error("{0:?} cannot stand in the endpoint's path or query")]
    Character(char),
    /// A `#` part, which is never sent.
    #[error("the endpoint must not have a fragment")]
    Fragment,
    /// `.` or `..` as a part of the path.
    #[error("the endpoint's path must not have dot segments")]
    DotSegment,
    /// A path or query that is no template.
    #[error(transparent)]
    Template(#[from] TemplateError),
}

impl UrlTemplate {
    pub(crate) fn parse(text: &str) -> Result<Self, UrlError> {
        let scheme = ["https://", "http://"].into_iter().find(|s| text.starts_with(s));
        let scheme = scheme.ok_or(UrlError::Scheme)?;
        let rest = &text[scheme.len()..];
        if rest.contains('#') {
            return Err(UrlError::Fragment);
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        if !is_authority(authority) {
            return Err(UrlError::Authority);
        }
        let (path, query) = match rest.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (rest, None),
        };
        let path = path.strip_prefix('/').unwrap_or("");
        let part = |text: &str| {
            let template = Template::parse(text)?;
            check_literals(&template)?;
            Ok::<_, UrlError>(template)
        };
        let path = path.split('/').map(part).collect::<Result<Vec<_>, _>>()?;
        let has_dots = |template: &Template| match &template.segments[..] {
            [Segment::Lit(lit)] => is_dot_segment(lit),
            _ => false,
        };
        if path.iter().any(has_dots) {
            return Err(UrlError::DotSegment);
        }
        let query = query.map(part).transpose()?;
        Ok(Self { origin: format!("{scheme}{authority}"), path, query })
    }

    pub(crate) fn any(&self, test: impl Fn(&Placeholder) -> bool + Copy) -> bool {
        self.path.iter().chain(&self.query).any(|template| template.any(test))
    }

    /// `https://host:port`, which no value can change.
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    pub(crate) fn render(&self, source: &Source<'_>) -> Result<Vec<Piece>, RenderError> {
        let mut pieces = vec![Piece::Text(self.origin.clone())];
        for template in &self.path {
            pieces.push(Piece::Text("/".to_owned()));
            let part = render_part(template, source)?;
            check_part(template, &part)?;
            pieces.extend(part);
        }
        if let Some(query) = &self.query {
            pieces.push(Piece::Text("?".to_owned()));
            pieces.extend(render_part(query, source)?);
        }
        Ok(pieces)
    }
}

fn render_part(template: &Template, source: &Source<'_>) -> Result<Vec<Piece>, RenderError> {
    let mut pieces = Vec::new();
    for segment in &template.segments {
        pieces.push(match segment {
            Segment::Lit(lit) => Piece::Text(lit.clone()),
            Segment::Put(placeholder) => match source.get(placeholder)? {
                Value::Node(node) => Piece::Text(encode(&scalar(&node, placeholder)?)),
                Value::Secret(name) => Piece::UrlSecret(name.to_owned()),
            },
        });
    }
    Ok(pieces)
}

/// The text of a value that may stand in a URL or a header.
pub(crate) fn scalar(node: &Node, placeholder: &Placeholder) -> Result<String, RenderError> {
    match node {
        Node::String(text) if text.is_exact() => Ok(text.as_str().to_owned()),
        Node::Number(number) => Ok(number.as_text().into_owned()),
        Node::Bool(value) => Ok(value.to_string()),
        _ => Err(RenderError::NotText { placeholder: placeholder.to_string() }),
    }
}

/// Percent-encodes everything but unreserved characters, so that a value stays one part.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String cannot fail, so the result says nothing.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// A part with a value in it must not vanish or climb: URL parsers drop dot segments, also ones
/// that are percent-encoded.
fn check_part(template: &Template, pieces: &[Piece]) -> Result<(), RenderError> {
    if template.placeholders().next().is_none() {
        return Ok(());
    }
    let mut text = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(piece) => text.push_str(piece),
            // The worker checks the part again when it knows the secret.
            Piece::Secret(_) | Piece::UrlSecret(_) => return Ok(()),
        }
    }
    if text.is_empty() || is_dot_segment(&text) {
        let part = template.segments.iter().map(|segment| match segment {
            Segment::Lit(lit) => lit.clone(),
            Segment::Put(placeholder) => placeholder.to_string(),
        });
        return Err(RenderError::UrlPart { part: part.collect() });
    }
    Ok(())
}

/// Whether a URL parser would take the part for `.` or `..`.
pub(crate) fn is_dot_segment(part: &str) -> bool {
    let plain = part.to_ascii_lowercase().replace("%2e", ".");
    plain == "." || plain == ".."
}

fn check_literals(template: &Template) -> Result<(), UrlError> {
    for segment in &template.segments {
        let Segment::Lit(lit) = segment else { continue };
        let bytes = lit.as_bytes();
        for (at, c) in lit.char_indices() {
            let is_escape = || {
                bytes.get(at + 1..at + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))
            };
            let fits = c.is_ascii_alphanumeric()
                || "-._~!$&'()*+,;=:@/?".contains(c)
                || (c == '%' && is_escape());
            if !fits {
                return Err(UrlError::Character(c));
            }
        }
    }
    Ok(())
}

fn is_authority(authority: &str) -> bool {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, port)) if host.parse::<std::net::Ipv6Addr>().is_ok() => {
                return port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
            }
            _ => return false,
        },
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    let name = host.strip_suffix('.').unwrap_or(host);
    name.len() <= 253 && name.split('.').all(is_label) && port.is_none_or(is_port)
}

fn is_port(port: &str) -> bool {
    port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0)
}
