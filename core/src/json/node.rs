//! One JSON value, with everything that its text said.

use super::{Number, Text};

/// A JSON value. An object keeps the order and the duplicates of its keys.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Node {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, as it was written.
    Number(Number),
    /// A string.
    String(Text),
    /// An array.
    Array(Vec<Node>),
    /// An object, in the order in which it was written.
    Object(Vec<(Text, Node)>),
}

/// One step of a path into a value: a key, or an index when it meets an array.
pub type Segment<'a> = &'a str;

impl Node {
    /// An empty object, which is what empty arguments mean.
    #[must_use]
    pub const fn empty_object() -> Self {
        Self::Object(Vec::new())
    }

    /// A string.
    #[must_use]
    pub fn string(text: impl Into<String>) -> Self {
        Self::String(Text::new(text))
    }

    /// The member of an object with this key; of several, the last one counts.
    #[must_use]
    pub fn member(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => {
                let found = members.iter().rev().find(|(k, _)| k.is_exact() && k.as_str() == key);
                found.map(|(_, value)| value)
            }
            _ => None,
        }
    }

    /// Follows a path. In an array a segment is an index written plainly (`0`, `12`).
    #[must_use]
    pub fn get<'a>(&self, path: impl IntoIterator<Item = Segment<'a>>) -> Option<&Self> {
        let mut at = self;
        for segment in path {
            at = match at {
                Self::Object(_) => at.member(segment)?,
                Self::Array(items) => items.get(index(segment)?)?,
                _ => return None,
            };
        }
        Some(at)
    }

    /// The decoded string, if this is one that Unicode can represent.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) if text.is_exact() => Some(text.as_str()),
            _ => None,
        }
    }

    /// The truth value, if this is one.
    #[must_use]
    pub const fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The number, if this is a whole one that fits.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Number(number) => number.as_u64(),
            _ => None,
        }
    }

    /// Whether this is an object.
    #[must_use]
    pub const fn is_object(&self) -> bool {
        matches!(self, Self::Object(_))
    }

    /// Whether a signature may be made of the value: `parse_strict` accepts its text.
    #[must_use]
    pub fn is_strict(&self) -> bool {
        match self {
            Self::Null | Self::Bool(_) => true,
            Self::Number(number) => number.strict_fault().is_none(),
            Self::String(text) => text.is_exact(),
            Self::Array(items) => items.iter().all(Self::is_strict),
            Self::Object(members) => {
                let mut keys: Vec<&str> = members.iter().map(|(key, _)| key.as_str()).collect();
                keys.sort_unstable();
                keys.windows(2).all(|pair| pair[0] != pair[1])
                    && members.iter().all(|(key, value)| key.is_exact() && value.is_strict())
            }
        }
    }

    /// Compact text with everything as it was written: key order, duplicates, number texts and
    /// lone surrogates.
    #[must_use]
    pub fn to_text_exact(&self) -> String {
        let mut out = String::new();
        self.write_exact(&mut out);
        out
    }

    fn write_exact(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Number(number) => out.push_str(&number.as_text()),
            Self::String(text) => text.write_quoted(out),
            Self::Array(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    item.write_exact(out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (i, (key, value)) in members.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    key.write_quoted(out);
                    out.push(':');
                    value.write_exact(out);
                }
                out.push('}');
            }
        }
    }
}

/// An array index: digits without a sign or a leading zero.
fn index(segment: &str) -> Option<usize> {
    let plain = segment == "0"
        || (!segment.starts_with('0') && segment.bytes().all(|b| b.is_ascii_digit()));
    if plain { segment.parse().ok() } else { None }
}
