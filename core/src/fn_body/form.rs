//! A body as a form: `application/x-www-form-urlencoded`.
//!
//! Nested names are written `a[b]`, items of a list `a[]`. Items that are objects or lists are
//! numbered (`a[0][b]`), since nobody could tell otherwise where one ends and the next begins.

use std::borrow::Cow;

use crate::json::Node;
use crate::template::RenderError;
use crate::template::url::encode as percent_encode;

/// Whether a body can be sent as a form: it has to be an object, and every text one that Unicode
/// can represent.
pub(super) fn check(body: &Node) -> Result<(), RenderError> {
    if !body.is_object() {
        return Err(RenderError::NotAForm { why: "it is not an object" });
    }
    if !is_exact(body) {
        return Err(RenderError::NotAForm { why: "a text of it is not Unicode" });
    }
    Ok(())
}

fn is_exact(node: &Node) -> bool {
    match node {
        Node::Null | Node::Bool(_) | Node::Number(_) => true,
        Node::String(text) => text.is_exact(),
        Node::Array(items) => items.iter().all(is_exact),
        Node::Object(members) => {
            members.iter().all(|(key, value)| key.is_exact() && is_exact(value))
        }
    }
}

/// The form's text. Numbers stand as they were written; null is an empty value; an empty list or
/// object has no field.
pub(super) fn encode(body: &Node) -> String {
    let mut out = String::new();
    if let Node::Object(members) = body {
        for (key, value) in members {
            write(key.as_str(), value, &mut out);
        }
    }
    out
}

fn write(name: &str, value: &Node, out: &mut String) {
    let text = match value {
        Node::Object(members) => {
            for (key, value) in members {
                write(&format!("{name}[{}]", key.as_str()), value, out);
            }
            return;
        }
        Node::Array(items) => {
            let is_nested = |item: &Node| matches!(item, Node::Array(_) | Node::Object(_));
            let is_numbered = items.iter().any(is_nested);
            for (index, item) in items.iter().enumerate() {
                let index = if is_numbered { index.to_string() } else { String::new() };
                write(&format!("{name}[{index}]"), item, out);
            }
            return;
        }
        Node::Null => Cow::Borrowed(""),
        Node::Bool(value) => Cow::Borrowed(if *value { "true" } else { "false" }),
        Node::Number(number) => number.as_text(),
        Node::String(text) => Cow::Borrowed(text.as_str()),
    };
    if !out.is_empty() {
        out.push('&');
    }
    out.push_str(&field(name));
    out.push('=');
    out.push_str(&field(&text));
}

/// Everything but unreserved characters is percent-encoded; a space is `+`.
fn field(text: &str) -> String {
    percent_encode(text).replace("%20", "+")
}
