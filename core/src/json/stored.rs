//! What is stored of a value: a jsonb text for people and queries, and the original bytes beside
//! it whenever jsonb would not give an equal value back.

use std::borrow::Cow;

use super::{JsonError, Node, Number, parse::parse_stored};
use crate::limits::{NUMBER_BYTES_MAX, NUMBER_EXPONENT_MAX};

/// What NUL is shown as, since no text or jsonb of Postgres can hold it.
const SHOWN_NUL: &str = "\u{2400}";

/// One value as its two columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Text that jsonb accepts.
    pub jsonb_text: String,
    /// The original bytes; `None` when jsonb keeps an equal value.
    pub raw: Option<Vec<u8>>,
}

/// Splits a value into its two columns. `original` are the bytes that `node` was parsed from.
#[must_use]
pub fn to_jsonb(node: &Node, original: &[u8]) -> Stored {
    let raw = (!survives(node)).then(|| original.to_vec());
    let mut jsonb_text = String::new();
    write(node, &mut jsonb_text);
    Stored { jsonb_text, raw }
}

/// The value that was stored.
///
/// # Errors
/// A stored text that is no JSON, which only a fault of ours or of the storage can make.
pub fn from_stored(jsonb_text: &str, raw: Option<&[u8]>) -> Result<Node, JsonError> {
    parse_stored(raw.unwrap_or(jsonb_text.as_bytes()))
}

/// A text as its two columns: what is shown, and the original when it holds NUL.
#[must_use]
pub fn show_text(text: &str) -> (String, Option<Vec<u8>>) {
    if text.contains('\0') {
        (text.replace('\0', SHOWN_NUL), Some(text.as_bytes().to_vec()))
    } else {
        (text.to_owned(), None)
    }
}

/// The text that was stored: the original when there is one.
#[must_use]
pub fn shown_from(shown: &str, raw: Option<&[u8]>) -> String {
    match raw {
        Some(raw) => String::from_utf8_lossy(raw).into_owned(),
        None => shown.to_owned(),
    }
}

/// Whether jsonb gives an equal value back.
fn survives(node: &Node) -> bool {
    match node {
        Node::Null | Node::Bool(_) => true,
        Node::Number(number) => number_survives(number),
        Node::String(text) => text.is_exact() && !text.as_str().contains('\0'),
        Node::Array(items) => items.iter().all(survives),
        Node::Object(members) => {
            let mut keys: Vec<&str> = members.iter().map(|(key, _)| key.as_str()).collect();
            keys.sort_unstable();
            let is_unique = keys.windows(2).all(|pair| pair[0] != pair[1]);
            is_unique
                && members.iter().all(|(key, value)| {
                    key.is_exact() && !key.as_str().contains('\0') && survives(value)
                })
        }
    }
}

/// jsonb keeps decimals exactly, but drops exponents and the sign of zero. Long decimals are kept
/// beside it too, for whoever reads the jsonb through doubles.
fn number_survives(number: &Number) -> bool {
    if number.as_i64().is_some() || number.as_u64().is_some() {
        return true;
    }
    let text = number.as_text();
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let is_negative_zero =
        text.starts_with('-') && text.bytes().all(|b| matches!(b, b'-' | b'0' | b'.'));
    !number.is_integer() && !text.contains(['e', 'E']) && !is_negative_zero && digits <= 15
}

fn write(node: &Node, out: &mut String) {
    match node {
        Node::Null => out.push_str("null"),
        Node::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Node::Number(number) => {
            let text = number.as_text();
            if is_reasonable(&text) {
                out.push_str(&text);
            } else {
                super::text::write_quoted(&text, out);
            }
        }
        Node::String(text) => super::text::write_quoted(&shown(text.as_str()), out),
        Node::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Node::Object(members) => {
            out.push('{');
            for (i, (key, value)) in members.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                super::text::write_quoted(&shown(key.as_str()), out);
                out.push(':');
                write(value, out);
            }
            out.push('}');
        }
    }
}

fn shown(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { text.replace('\0', SHOWN_NUL).into() } else { text.into() }
}

/// Whether jsonb may hold the number itself: it writes exponents out digit by digit.
fn is_reasonable(text: &str) -> bool {
    let exponent = text.split(['e', 'E']).nth(1);
    text.len() <= NUMBER_BYTES_MAX
        && exponent
            .is_none_or(|e| e.parse::<i64>().is_ok_and(|e| e.unsigned_abs() <= NUMBER_EXPONENT_MAX))
}
