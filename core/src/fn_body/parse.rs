//! Reads and checks the JSON of a registration.

use std::str::FromStr;

use super::call::is_header_value;
use super::check::is_allowed_header;
use super::{BodyKind, FnBody, Method, OnMissingResult, OnUnknown, UrlError};
use crate::answer::{Condition, NotDone, Rules, statuses};
use crate::json::Node;
use crate::limits::{COMPENSATION_CALL_MS_DEFAULT, COMPENSATION_CALL_MS_MAX};
use crate::template::url::UrlTemplate;
use crate::template::{Placeholder, Segment, Template, TemplateError, TreeTemplate};

/// Why a registration's `fn_body` is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FnBodyError {
    /// Not a JSON object.
    #[error("fn_body must be a JSON object")]
    NotAnObject,
    /// A field that does not exist.
    #[error("fn_body has no field {0:?}")]
    UnknownField(String),
    /// A field that is missing.
    #[error("fn_body needs the field {0:?}")]
    MissingField(&'static str),
    /// A field with a value that it cannot have.
    #[error("fn_body.{field} must be {expected}")]
    Field {
        /// The field.
        field: &'static str,
        /// What it may be.
        expected: &'static str,
    },
    /// An endpoint that is none.
    #[error("fn_body.endpoint: {0}")]
    Endpoint(#[from] UrlError),
    /// A header that a registration cannot set.
    #[error("fn_body.headers: {0:?} cannot be set")]
    Header(String),
    /// A header's value or the mapping is no template.
    #[error("fn_body.{field}: {error}")]
    Template {
        /// The field.
        field: &'static str,
        /// What is wrong.
        error: TemplateError,
    },
}

const FIELDS: &[&str] = &[
    "kind",
    "method",
    "endpoint",
    "headers",
    "arg_mapping",
    "body",
    "idempotency_key_header",
    "timeout_ms",
    "done_statuses",
    "done_when",
    "not_done",
    "retry_statuses",
    "on_missing_result",
    "on_unknown",
    "repeatable",
];

impl FnBody {
    /// Reads and checks a registration.
    ///
    /// # Errors
    /// An unknown field, a missing one, or a value that a field cannot have.
    pub fn parse(node: &Node) -> Result<Self, FnBodyError> {
        let Node::Object(members) = node else {
            return Err(FnBodyError::NotAnObject);
        };
        let unknown = members.iter().find(|(key, _)| !FIELDS.contains(&key.as_str()));
        if let Some((key, _)) = unknown {
            return Err(FnBodyError::UnknownField(key.as_str().chars().take(64).collect()));
        }
        if field(node, "kind").is_some_and(|kind| kind.as_str() != Some("http")) {
            return Err(FnBodyError::Field { field: "kind", expected: "\"http\"" });
        }
        let method = method(node)?;
        let endpoint = match field(node, "endpoint").map(Node::as_str) {
            None => return Err(FnBodyError::MissingField("endpoint")),
            Some(None) => return Err(bad("endpoint", "a URL")),
            Some(Some(text)) => UrlTemplate::parse(text)?,
        };
        let mapping = field(node, "arg_mapping");
        let body = body_kind(node, method, &endpoint, mapping)?;
        let arg_mapping = match mapping {
            None => None,
            Some(mapping) => {
                let of = |error| FnBodyError::Template { field: "arg_mapping", error };
                Some(TreeTemplate::parse(mapping).map_err(of)?)
            }
        };
        let idempotency_key_header = idempotency_key_header(node)?;
        Ok(Self {
            method,
            endpoint,
            headers: headers(node, &idempotency_key_header)?,
            arg_mapping,
            body,
            idempotency_key_header,
            timeout_ms: timeout_ms(node)?,
            rules: rules(node)?,
            on_missing_result: named(
                node,
                "on_missing_result",
                OnMissingResult::Auto,
                "auto, dead_letter, skip or null",
            )?,
            on_unknown: named(
                node,
                "on_unknown",
                OnUnknown::Compensate,
                "compensate, probe or dead_letter",
            )?,
            repeatable: match field(node, "repeatable") {
                None => false,
                Some(value) => value.as_bool().ok_or(bad("repeatable", "true or false"))?,
            },
        })
    }
}

/// A field's value; null counts as absent.
fn field<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    node.member(name).filter(|value| **value != Node::Null)
}

const fn bad(field: &'static str, expected: &'static str) -> FnBodyError {
    FnBodyError::Field { field, expected }
}

fn method(node: &Node) -> Result<Method, FnBodyError> {
    let expected = bad("method", "GET, POST, PUT, PATCH or DELETE");
    match field(node, "method").map(Node::as_str) {
        None => Ok(Method::Post),
        Some(Some(text)) => text.parse().map_err(|_| expected),
        Some(None) => Err(expected),
    }
}

fn named<T: FromStr>(
    node: &Node,
    name: &'static str,
    default: T,
    expected: &'static str,
) -> Result<T, FnBodyError> {
    match field(node, name) {
        None => Ok(default),
        Some(value) => {
            let text = value.as_str().ok_or(bad(name, expected))?;
            text.parse().map_err(|_| bad(name, expected))
        }
    }
}

fn timeout_ms(node: &Node) -> Result<u64, FnBodyError> {
    let Some(value) = field(node, "timeout_ms") else {
        return Ok(COMPENSATION_CALL_MS_DEFAULT);
    };
    let fits = value.as_u64().filter(|ms| (1..=COMPENSATION_CALL_MS_MAX).contains(ms));
    fits.ok_or(bad("timeout_ms", "a whole number of milliseconds from 1 to 600000"))
}

/// What the body is. A GET has none. A DELETE whose URL names what is deleted has none either:
/// servers may refuse one that they do not expect. Where the URL names nothing, only the body can.
fn body_kind(
    node: &Node,
    method: Method,
    endpoint: &UrlTemplate,
    mapping: Option<&Node>,
) -> Result<BodyKind, FnBodyError> {
    let is_named = || endpoint.any(|placeholder| !matches!(placeholder, Placeholder::Secret(_)));
    let default = match (method, mapping) {
        (Method::Get, _) => BodyKind::None,
        (Method::Delete, None) if is_named() => BodyKind::None,
        _ => BodyKind::Json,
    };
    let body = named(node, "body", default, "json, form or none")?;
    if method == Method::Get && body != BodyKind::None {
        return Err(bad("body", "none for GET"));
    }
    match (body, mapping) {
        (BodyKind::None, Some(_)) if method == Method::Get => {
            Err(bad("arg_mapping", "absent for GET, which has no body"))
        }
        (BodyKind::None, Some(_)) => Err(bad("arg_mapping", "absent when body is none")),
        // A placeholder alone can become an object.
        (BodyKind::Form, Some(mapping))
            if !mapping.is_object() && !matches!(mapping, Node::String(_)) =>
        {
            Err(bad("arg_mapping", "an object when body is form"))
        }
        _ => Ok(body),
    }
}

fn rules(node: &Node) -> Result<Rules, FnBodyError> {
    let done_statuses = status_list(node, "done_statuses")?;
    let retry_statuses = status_list(node, "retry_statuses")?;
    if retry_statuses.iter().any(|status| done_statuses.contains(status)) {
        return Err(bad("retry_statuses", "without the statuses of done_statuses"));
    }
    let done_when = match field(node, "done_when") {
        None => Vec::new(),
        Some(conditions) => {
            Condition::parse_any(conditions).map_err(|error| bad("done_when", error.0))?
        }
    };
    let not_done = named(node, "not_done", NotDone::Retry, "retry or dead_letter")?;
    Ok(Rules { done_statuses, done_when, not_done, retry_statuses, key_may_be_in_use: false })
}

/// A list of statuses, which may be empty.
fn status_list(node: &Node, name: &'static str) -> Result<Vec<u16>, FnBodyError> {
    match field(node, name) {
        None => Ok(Vec::new()),
        Some(Node::Array(items)) if items.is_empty() => Ok(Vec::new()),
        Some(list) => statuses(list).map_err(|error| bad(name, error.0)),
    }
}

fn idempotency_key_header(node: &Node) -> Result<String, FnBodyError> {
    let Some(value) = field(node, "idempotency_key_header") else {
        return Ok("Idempotency-Key".to_owned());
    };
    let name = value.as_str().ok_or(bad("idempotency_key_header", "a header's name"))?;
    if is_allowed_header(name) {
        Ok(name.to_owned())
    } else {
        Err(FnBodyError::Header(name.chars().take(64).collect()))
    }
}

fn headers(node: &Node, key_header: &str) -> Result<Vec<(String, Template)>, FnBodyError> {
    let members = match field(node, "headers") {
        None => return Ok(Vec::new()),
        Some(Node::Object(members)) => members,
        Some(_) => return Err(bad("headers", "an object of strings")),
    };
    let mut headers: Vec<(String, Template)> = Vec::with_capacity(members.len());
    for (name, value) in members {
        let name = name.as_str();
        let is_taken = name.eq_ignore_ascii_case(key_header)
            || headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
        if !is_allowed_header(name) || is_taken {
            return Err(FnBodyError::Header(name.chars().take(64).collect()));
        }
        headers.push((name.to_owned(), header_value(name, value)?));
    }
    Ok(headers)
}

fn header_value(name: &str, value: &Node) -> Result<Template, FnBodyError> {
    let text = value.as_str().ok_or(bad("headers", "an object of strings"))?;
    let of = |error| FnBodyError::Template { field: "headers", error };
    let template = Template::parse(text).map_err(of)?;
    let is_value = template.segments.iter().all(|segment| match segment {
        Segment::Lit(lit) => is_header_value(lit),
        Segment::Put(_) => true,
    });
    if is_value { Ok(template) } else { Err(FnBodyError::Header(name.to_owned())) }
}
