//! Lossless JSON: the value a caller sent, byte for byte where that matters.
//!
//! `serde_json::Value` drops duplicate keys and rounds numbers, and its printer changes between
//! versions. What is signed, stored and replayed goes through the types of this module instead.

mod canonical;
mod node;
mod number;
mod parse;
mod serde;
mod stored;
mod text;

pub use canonical::{canonical, canonical_value_eq};
pub use node::{Node, Segment};
pub use number::Number;
pub use parse::{JsonError, JsonErrorKind, parse_lossless, parse_strict};
pub use serde::{from_serde, to_serde};
pub use stored::{Stored, from_stored, show_text, shown_from, to_jsonb};
pub(crate) use text::Joined;
pub use text::Text;
