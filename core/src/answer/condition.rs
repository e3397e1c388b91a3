//! A condition on an answer: its status, and what stands at a place of its body.

use serde::{Deserialize, Serialize};

use crate::json::{Node, canonical_value_eq};

/// A JSON pointer (RFC 6901).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pointer(Vec<String>);

impl Pointer {
    /// Reads a pointer: the empty text, which is the whole value, or one that begins with `/`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self(Vec::new()));
        }
        let rest = text.strip_prefix('/')?;
        Some(Self(rest.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect()))
    }

    /// What stands there.
    #[must_use]
    pub fn get<'a>(&self, node: &'a Node) -> Option<&'a Node> {
        node.get(self.0.iter().map(String::as_str))
    }
}

/// What must stand at a place of the body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Test {
    /// This value.
    Equals(#[serde(with = "exact")] Node),
    /// Anything, or nothing.
    Exists(bool),
}

/// A condition on an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// Statuses that it is about; `None`: every 2xx.
    status: Option<Vec<u16>>,
    pointer: Pointer,
    test: Test,
}

/// Why a condition is refused: what it has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConditionError(pub &'static str);

/// What `done_when` has to be.
const SHAPE: ConditionError = ConditionError(
    "an object, or an array of objects, each with \"pointer\" (a JSON pointer), \"equals\" or \
     \"exists\", and perhaps \"status\"",
);

impl Condition {
    /// Reads one condition, or several in an array.
    ///
    /// # Errors
    /// What they have to be.
    pub fn parse_any(node: &Node) -> Result<Vec<Self>, ConditionError> {
        match node {
            Node::Array(items) if items.is_empty() => Err(SHAPE),
            Node::Array(items) => items.iter().map(Self::parse).collect(),
            one => Ok(vec![Self::parse(one)?]),
        }
    }

    fn parse(node: &Node) -> Result<Self, ConditionError> {
        let Node::Object(members) = node else { return Err(SHAPE) };
        let known = ["status", "pointer", "equals", "exists"];
        if members.iter().any(|(key, _)| !known.contains(&key.as_str())) {
            return Err(SHAPE);
        }
        let status = node.member("status").map(statuses).transpose()?;
        let pointer = node.member("pointer").and_then(Node::as_str).and_then(Pointer::parse);
        let test = match (node.member("equals"), node.member("exists")) {
            (Some(value), None) => Test::Equals(value.clone()),
            (None, Some(value)) => Test::Exists(value.as_bool().ok_or(SHAPE)?),
            _ => return Err(SHAPE),
        };
        Ok(Self { status, pointer: pointer.ok_or(SHAPE)?, test })
    }

    /// Whether the condition is about this status.
    #[must_use]
    pub fn is_about(&self, status: u16) -> bool {
        match &self.status {
            None => (200..300).contains(&status),
            Some(statuses) => statuses.contains(&status),
        }
    }

    /// Whether it holds. `None`: the body is not JSON, and nothing can be said of it.
    #[must_use]
    pub fn holds(&self, body: Option<&Node>) -> bool {
        let Some(body) = body else { return false };
        match (&self.test, self.pointer.get(body)) {
            (Test::Equals(value), Some(found)) => canonical_value_eq(found, value),
            (Test::Equals(_), None) => false,
            (Test::Exists(expected), found) => found.is_some() == *expected,
        }
    }
}

/// Reads a list of HTTP statuses that is not empty.
pub(crate) fn statuses(node: &Node) -> Result<Vec<u16>, ConditionError> {
    let expected = ConditionError("an array of HTTP statuses from 200 to 599");
    let Node::Array(items) = node else { return Err(expected) };
    let status = |item: &Node| {
        let status = item.as_u64().and_then(|status| u16::try_from(status).ok());
        status.filter(|status| (200..=599).contains(status)).ok_or(expected)
    };
    let statuses = items.iter().map(status).collect::<Result<Vec<_>, _>>()?;
    if statuses.is_empty() { Err(expected) } else { Ok(statuses) }
}

/// A value as its exact JSON text, for a call that a worker hands to another process.
mod exact {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    use crate::json::{Node, parse_lossless};

    pub(super) fn serialize<S: Serializer>(node: &Node, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&node.to_text_exact())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Node, D::Error> {
        parse_lossless(String::deserialize(d)?.as_bytes()).map_err(D::Error::custom)
    }
}
