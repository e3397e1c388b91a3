//! The parser: strict for what is signed, lossless for what the world sent.

use std::fmt;

use super::text::Text;
use super::{Node, Number};
use crate::limits::{JSON_DEPTH_MAX, STORED_DEPTH_MAX};

/// What is wrong with a JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JsonErrorKind {
    /// Not UTF-8.
    InvalidUtf8,
    /// A byte order mark before the value.
    ByteOrderMark,
    /// Not JSON.
    Syntax,
    /// The text ends inside a value.
    UnexpectedEnd,
    /// Something follows the value.
    TrailingData,
    /// Nested deeper than the limit.
    TooDeep,
    /// `NaN` or `Infinity`.
    NotFinite,
    /// An object has a key twice.
    DuplicateKey,
    /// Half of a surrogate pair.
    LoneSurrogate,
    /// An integer outside of i64 and u64.
    IntegerOutOfRange,
    /// A number too large for a double.
    NumberOverflow,
}

impl JsonErrorKind {
    /// A fixed name, as the shared vectors use it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidUtf8 => "invalid_utf8",
            Self::ByteOrderMark => "byte_order_mark",
            Self::Syntax => "syntax",
            Self::UnexpectedEnd => "unexpected_end",
            Self::TrailingData => "trailing_data",
            Self::TooDeep => "too_deep",
            Self::NotFinite => "not_finite",
            Self::DuplicateKey => "duplicate_key",
            Self::LoneSurrogate => "lone_surrogate",
            Self::IntegerOutOfRange => "integer_out_of_range",
            Self::NumberOverflow => "number_overflow",
        }
    }

    const fn sentence(self) -> &'static str {
        match self {
            Self::InvalidUtf8 => "the text is not UTF-8",
            Self::ByteOrderMark => "the text starts with a byte order mark",
            Self::Syntax => "this is not JSON",
            Self::UnexpectedEnd => "the text ends inside a value",
            Self::TrailingData => "something follows the value",
            Self::TooDeep => "the value is nested too deep",
            Self::NotFinite => "NaN and Infinity are no JSON numbers",
            Self::DuplicateKey => "the object has this key twice",
            Self::LoneSurrogate => "the string holds half of a surrogate pair",
            Self::IntegerOutOfRange => "the integer does not fit into 64 bits",
            Self::NumberOverflow => "the number is too large for a double",
        }
    }
}

/// What is wrong with a JSON text, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonError {
    /// What is wrong.
    pub kind: JsonErrorKind,
    /// The value that it is wrong in, such as `$.a[2].b`.
    pub path: String,
    /// Bytes before the fault.
    pub offset: usize,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at {}, byte {})", self.kind.sentence(), self.path, self.offset)
    }
}

impl std::error::Error for JsonError {}

/// Parses what a signature is made over.
///
/// # Errors
/// Whatever is no JSON, and whatever has no single meaning: duplicate keys, lone surrogates,
/// integers outside of i64 and u64, numbers that overflow a double, nesting over the limit.
pub fn parse_strict(text: &[u8]) -> Result<Node, JsonError> {
    parse(text, true, JSON_DEPTH_MAX)
}

/// Parses what the world sent (results, edited arguments) and keeps all of it: duplicate keys,
/// lone surrogates and numbers of any size.
///
/// # Errors
/// Whatever is no JSON or no UTF-8, and nesting over the limit.
pub fn parse_lossless(text: &[u8]) -> Result<Node, JsonError> {
    parse(text, false, JSON_DEPTH_MAX)
}

/// Parses what we stored: lossless, and as deep as several values of callers inside each other.
pub(super) fn parse_stored(text: &[u8]) -> Result<Node, JsonError> {
    parse(text, false, STORED_DEPTH_MAX)
}

fn parse(bytes: &[u8], is_strict: bool, depth_max: usize) -> Result<Node, JsonError> {
    let at_root = |kind, offset| JsonError { kind, path: "$".to_owned(), offset };
    let text = std::str::from_utf8(bytes)
        .map_err(|e| at_root(JsonErrorKind::InvalidUtf8, e.valid_up_to()))?;
    if text.starts_with('\u{feff}') {
        return Err(at_root(JsonErrorKind::ByteOrderMark, 0));
    }
    let mut parser = Parser { text, at: 0, is_strict, depth_max };
    let node = parser.value(0).map_err(Fault::into_error)?;
    parser.skip_space();
    if parser.at < text.len() {
        return Err(at_root(JsonErrorKind::TrailingData, parser.at));
    }
    Ok(node)
}

enum Step {
    Key(String),
    Index(usize),
}

/// An error on its way out: each level adds its step, so a good parse pays nothing for paths.
struct Fault {
    kind: JsonErrorKind,
    offset: usize,
    steps: Vec<Step>,
}

impl Fault {
    fn inside(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    fn into_error(self) -> JsonError {
        let mut path = "$".to_owned();
        for step in self.steps.into_iter().rev() {
            match step {
                Step::Index(index) => path.push_str(&format!("[{index}]")),
                Step::Key(key) if is_plain(&key) => {
                    path.push('.');
                    path.push_str(&key);
                }
                Step::Key(key) => {
                    // A long key in an error helps nobody.
                    let shown: String = key.chars().take(64).collect();
                    path.push('[');
                    super::text::write_quoted(&shown, &mut path);
                    path.push(']');
                }
            }
        }
        JsonError { kind: self.kind, path, offset: self.offset }
    }
}

fn is_plain(key: &str) -> bool {
    let first = key.bytes().next();
    first.is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && key.len() <= 64
        && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    is_strict: bool,
    depth_max: usize,
}

impl Parser<'_> {
    fn fault(&self, kind: JsonErrorKind) -> Fault {
        Fault { kind, offset: self.at, steps: Vec::new() }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// The fault for a byte that cannot stand here.
    fn unexpected(&self) -> Fault {
        self.fault(match self.peek() {
            None => JsonErrorKind::UnexpectedEnd,
            Some(_) => JsonErrorKind::Syntax,
        })
    }

    fn value(&mut self, depth: usize) -> Result<Node, Fault> {
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.array(depth + 1),
            Some(b'"') => Ok(Node::String(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => self.word(),
        }
    }

    fn word(&mut self) -> Result<Node, Fault> {
        let rest = &self.text[self.at..];
        let words =
            [("null", Node::Null), ("true", Node::Bool(true)), ("false", Node::Bool(false))];
        for (word, node) in words {
            if rest.starts_with(word) {
                self.at += word.len();
                return Ok(node);
            }
        }
        if ["NaN", "Infinity"].iter().any(|word| rest.starts_with(word)) {
            return Err(self.fault(JsonErrorKind::NotFinite));
        }
        Err(self.unexpected())
    }

    fn enter(&mut self, depth: usize) -> Result<(), Fault> {
        if depth > self.depth_max {
            return Err(self.fault(JsonErrorKind::TooDeep));
        }
        self.at += 1;
        self.skip_space();
        Ok(())
    }

    fn array(&mut self, depth: usize) -> Result<Node, Fault> {
        self.enter(depth)?;
        let mut items = Vec::new();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Node::Array(items));
        }
        loop {
            let index = items.len();
            items.push(self.value(depth).map_err(|e| e.inside(Step::Index(index)))?);
            if self.next_or_end(b']')? {
                return Ok(Node::Array(items));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Node, Fault> {
        self.enter(depth)?;
        let mut members: Vec<(Text, Node)> = Vec::new();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Node::Object(members));
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected());
            }
            let key = self.string()?;
            self.skip_space();
            if self.peek() != Some(b':') {
                return Err(self.unexpected());
            }
            self.at += 1;
            let value = self.value(depth);
            let value = value.map_err(|e| e.inside(Step::Key(key.as_str().to_owned())))?;
            members.push((key, value));
            if self.next_or_end(b'}')? {
                break;
            }
        }
        if self.is_strict {
            self.refuse_duplicates(&members)?;
        }
        Ok(Node::Object(members))
    }

    /// Whether the container ends here, after a value.
    fn next_or_end(&mut self, end: u8) -> Result<bool, Fault> {
        self.skip_space();
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                Ok(false)
            }
            Some(byte) if byte == end => {
                self.at += 1;
                Ok(true)
            }
            _ => Err(self.unexpected()),
        }
    }

    fn refuse_duplicates(&self, members: &[(Text, Node)]) -> Result<(), Fault> {
        let mut keys: Vec<&str> = members.iter().map(|(key, _)| key.as_str()).collect();
        keys.sort_unstable();
        match keys.windows(2).find(|pair| pair[0] == pair[1]) {
            None => Ok(()),
            Some(pair) => {
                Err(self.fault(JsonErrorKind::DuplicateKey).inside(Step::Key(pair[0].to_owned())))
            }
        }
    }

    fn number(&mut self) -> Result<Node, Fault> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.text[self.at..].starts_with("Infinity") {
            return Err(self.fault(JsonErrorKind::NotFinite));
        }
        match self.peek() {
            // A leading zero stands alone: what follows it is caught by whoever reads on.
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.fault(JsonErrorKind::Syntax));
        }
        let number = Number::from_valid_text(&self.text[start..self.at]);
        match number.strict_fault() {
            Some(kind) if self.is_strict => Err(self.fault(kind)),
            _ => Ok(Node::Number(number)),
        }
    }

    fn digits(&mut self) -> Result<(), Fault> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.unexpected());
        }
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        Ok(())
    }

    fn string(&mut self) -> Result<Text, Fault> {
        self.at += 1;
        let start = self.at;
        let mut value = String::new();
        let mut is_exact = true;
        loop {
            let plain = self.at;
            while matches!(self.peek(), Some(b) if b != b'"' && b != b'\\' && b >= b' ') {
                self.at += 1;
            }
            value.push_str(&self.text[plain..self.at]);
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => match self.escape()? {
                    Some(c) => value.push(c),
                    None if self.is_strict => {
                        return Err(self.fault(JsonErrorKind::LoneSurrogate));
                    }
                    None => {
                        is_exact = false;
                        value.push(char::REPLACEMENT_CHARACTER);
                    }
                },
                _ => return Err(self.unexpected()),
            }
        }
        let raw = &self.text[start..self.at];
        self.at += 1;
        Ok(if is_exact { Text::new(value) } else { Text::with_raw(value, raw.to_owned()) })
    }

    /// One escape; `None` is a lone surrogate.
    fn escape(&mut self) -> Result<Option<char>, Fault> {
        self.at += 1;
        let simple = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(),
            _ => return Err(self.unexpected()),
        };
        self.at += 1;
        Ok(Some(simple))
    }

    fn unicode(&mut self) -> Result<Option<char>, Fault> {
        self.at += 1;
        let first = self.hex4()?;
        if !(0xd800..0xdc00).contains(&first) {
            // `from_u32` is `None` exactly for a low surrogate that stands alone.
            return Ok(char::from_u32(first));
        }
        if !self.text[self.at..].starts_with("\\u") {
            return Ok(None);
        }
        let before = self.at;
        self.at += 2;
        let second = self.hex4()?;
        if (0xdc00..0xe000).contains(&second) {
            return Ok(char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)));
        }
        // The second escape is a character of its own.
        self.at = before;
        Ok(None)
    }

    fn hex4(&mut self) -> Result<u32, Fault> {
        let mut value = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|b| char::from(b).to_digit(16));
            let Some(digit) = digit else {
                return Err(self.unexpected());
            };
            value = value << 4 | digit;
            self.at += 1;
        }
        Ok(value)
    }
}
