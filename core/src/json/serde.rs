//! To and from `serde_json::Value`, for schema validation and for files that we write ourselves.

use serde_json::{Map, Value};

use super::{Node, Number, Text};

/// The value as `serde_json` sees it, for JSON Schema. It may lose what the text said: the last of
/// several equal keys wins, doubles are rounded, and a number beyond a double becomes a string.
#[must_use]
pub fn to_serde(node: &Node) -> Value {
    match node {
        Node::Null => Value::Null,
        Node::Bool(value) => Value::Bool(*value),
        Node::Number(number) => number_to_serde(number),
        Node::String(text) => Value::String(text.as_str().to_owned()),
        Node::Array(items) => Value::Array(items.iter().map(to_serde).collect()),
        Node::Object(members) => {
            let members = members.iter().map(|(k, v)| (k.as_str().to_owned(), to_serde(v)));
            Value::Object(members.collect::<Map<_, _>>())
        }
    }
}

fn number_to_serde(number: &Number) -> Value {
    if let Some(value) = number.as_i64() {
        return value.into();
    }
    if let Some(value) = number.as_u64() {
        return value.into();
    }
    let double = number.as_f64().and_then(serde_json::Number::from_f64);
    double.map_or_else(|| Value::String(number.as_text().into_owned()), Value::Number)
}

/// A `serde_json` value as a node.
#[must_use]
pub fn from_serde(value: &Value) -> Node {
    match value {
        Value::Null => Node::Null,
        Value::Bool(value) => Node::Bool(*value),
        Value::Number(number) => Node::Number(Number::from_valid_text(&number.to_string())),
        Value::String(text) => Node::String(Text::new(text.as_str())),
        Value::Array(items) => Node::Array(items.iter().map(from_serde).collect()),
        Value::Object(members) => {
            let members = members.iter().map(|(k, v)| (Text::new(k.as_str()), from_serde(v)));
            Node::Object(members.collect())
        }
    }
}
