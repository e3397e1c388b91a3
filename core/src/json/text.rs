//! A JSON string: decoded where Unicode allows it, and as it was written where it does not.

use std::fmt::Write as _;

/// A JSON string.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Text {
    /// The decoded string; a lone surrogate shows as U+FFFD.
    value: Box<str>,
    /// The body between the quotes as it was written, kept only when it holds a lone surrogate.
    raw: Option<Box<str>>,
}

impl Text {
    /// A text that Unicode can represent.
    #[must_use]
    pub fn new(value: impl Into<String>) -> Self {
        Self { value: value.into().into_boxed_str(), raw: None }
    }

    /// A text with lone surrogates: what can be shown, and what was written between the quotes.
    pub(crate) fn with_raw(value: String, raw: String) -> Self {
        Self { value: value.into_boxed_str(), raw: Some(raw.into_boxed_str()) }
    }

    /// The decoded string; lone surrogates show as U+FFFD.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.value
    }

    /// Whether the decoded string is the whole truth.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        self.raw.is_none()
    }

    /// Appends the quoted string: escaped as `serde_json` does, or as it was written.
    pub(crate) fn write_quoted(&self, out: &mut String) {
        match &self.raw {
            Some(raw) => {
                out.push('"');
                out.push_str(raw);
                out.push('"');
            }
            None => write_quoted(&self.value, out),
        }
    }
}

impl From<&str> for Text {
    fn from(value: &str) -> Self {
        Self::new(value)
    }
}

/// Appends a quoted string with the escapes that `serde_json` uses: the short ones, `\u00xx` in
/// lower case for the other control characters, and nothing else.
pub(crate) fn write_quoted(text: &str, out: &mut String) {
    out.push('"');
    write_body(text, out);
    out.push('"');
}

fn write_body(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' => {
                // Writing to a String cannot fail, so the result says nothing.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
}

/// A text that is put together; what Unicode cannot represent stays as it was written.
#[derive(Debug, Default)]
pub(crate) struct Joined {
    value: String,
    raw: Option<String>,
}

impl Joined {
    /// Puts a text behind what is there.
    pub(crate) fn push(&mut self, text: &Text) {
        if !text.is_exact() && self.raw.is_none() {
            let mut raw = String::new();
            write_body(&self.value, &mut raw);
            self.raw = Some(raw);
        }
        match (&mut self.raw, &text.raw) {
            (Some(raw), Some(theirs)) => raw.push_str(theirs),
            (Some(raw), None) => write_body(&text.value, raw),
            (None, _) => {}
        }
        self.value.push_str(&text.value);
    }

    /// The whole.
    pub(crate) fn finish(self) -> Text {
        match self.raw {
            Some(raw) => Text::with_raw(self.value, raw),
            None => Text::new(self.value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_together_is_kept_as_it_was_written() {
        let mut whole = Joined::default();
        whole.push(&Text::new("a\"\n"));
        whole.push(&Text::with_raw("\u{fffd}".to_owned(), "\\ud800".to_owned()));
        whole.push(&Text::new("b\\"));
        let mut quoted = String::new();
        let text = whole.finish();
        text.write_quoted(&mut quoted);
        assert_eq!(quoted, r#""a\"\n\ud800b\\""#);
        assert_eq!(text.as_str(), "a\"\n\u{fffd}b\\");
        assert!(!text.is_exact());
        let mut plain = Joined::default();
        plain.push(&Text::new("a"));
        assert_eq!(plain.finish(), Text::new("a"));
    }
}
