//! A JSON number as it was written, and the one printer that signatures rest on.

use std::borrow::Cow;

/// A JSON number. Plain 64-bit integers are kept by value, everything else by its text.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Number(Repr);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Repr {
    /// An integer that fits: its text is its decimal form, so nothing is lost.
    Int(i64),
    /// Everything else, as it was written (`-0` too).
    Text(Box<str>),
}

impl Number {
    /// From text that the JSON grammar accepts as a number.
    pub(crate) fn from_valid_text(text: &str) -> Self {
        match text.parse::<i64>() {
            Ok(value) if text != "-0" => Self(Repr::Int(value)),
            _ => Self(Repr::Text(text.into())),
        }
    }

    /// The text as it was written.
    #[must_use]
    pub fn as_text(&self) -> Cow<'_, str> {
        match &self.0 {
            Repr::Int(value) => Cow::Owned(value.to_string()),
            Repr::Text(text) => Cow::Borrowed(text),
        }
    }

    /// Whether it is written without a fraction and without an exponent.
    #[must_use]
    pub fn is_integer(&self) -> bool {
        match &self.0 {
            Repr::Int(_) => true,
            Repr::Text(text) => !text.contains(['.', 'e', 'E']),
        }
    }

    /// The value, if it is written as an integer that fits.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        match &self.0 {
            Repr::Int(value) => Some(*value),
            Repr::Text(_) => None,
        }
    }

    /// The value, if it is written as an integer that fits.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        match &self.0 {
            Repr::Int(value) => u64::try_from(*value).ok(),
            Repr::Text(text) => text.parse().ok(),
        }
    }

    /// The nearest double, if it is finite.
    #[must_use]
    pub fn as_f64(&self) -> Option<f64> {
        // A number of the JSON grammar is one of Rust's grammar, so parsing cannot fail.
        self.as_text().parse::<f64>().ok().filter(|value| value.is_finite())
    }

    /// Why a signature could not rest on this number, if it could not.
    pub(crate) fn strict_fault(&self) -> Option<super::JsonErrorKind> {
        match &self.0 {
            Repr::Int(_) => None,
            Repr::Text(text) if self.is_integer() => {
                let fits = text.parse::<u64>().is_ok() || &**text == "-0";
                (!fits).then_some(super::JsonErrorKind::IntegerOutOfRange)
            }
            Repr::Text(_) => {
                self.as_f64().is_none().then_some(super::JsonErrorKind::NumberOverflow)
            }
        }
    }

    /// Appends the canonical form: plain integers, doubles in the frozen layout, and for numbers
    /// that no signature accepts the text as it was written.
    pub(crate) fn write_canonical(&self, out: &mut String) {
        let text = match &self.0 {
            Repr::Int(value) => return out.push_str(&value.to_string()),
            Repr::Text(text) => text,
        };
        if self.strict_fault().is_some() || (self.is_integer() && &**text != "-0") {
            return out.push_str(text);
        }
        match self.as_f64() {
            Some(value) => write_f64(value, out),
            None => out.push_str(text),
        }
    }
}

impl From<i64> for Number {
    fn from(value: i64) -> Self {
        Self(Repr::Int(value))
    }
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self::from_valid_text(&value.to_string())
    }
}

/// Appends a finite double: the shortest digits that read back equal, laid out plainly from 1e-5
/// up to below 1e16, else with a signed exponent. This layout is frozen: signatures rest on it.
fn write_f64(value: f64, out: &mut String) {
    let scientific = shortest(value);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    out.push_str(sign);
    match exponent {
        0..=15 => {
            let whole = usize::try_from(exponent).unwrap_or(0) + 1;
            if digits.len() > whole {
                out.push_str(&digits[..whole]);
                out.push('.');
                out.push_str(&digits[whole..]);
            } else {
                out.push_str(&digits);
                out.extend(std::iter::repeat_n('0', whole - digits.len()));
                out.push_str(".0");
            }
        }
        -5..=-1 => {
            out.push_str("0.");
            let zeros = usize::try_from(-exponent - 1).unwrap_or(0);
            out.extend(std::iter::repeat_n('0', zeros));
            out.push_str(&digits);
        }
        _ => {
            out.push_str(&digits[..1]);
            if digits.len() > 1 {
                out.push('.');
                out.push_str(&digits[1..]);
            }
            out.push('e');
            out.push(if exponent < 0 { '-' } else { '+' });
            out.push_str(&exponent.unsigned_abs().to_string());
        }
    }
}

/// The shortest digits that read back equal, as `d.ddde±x`. Of two that are equally near the even
/// one is taken, as every other printer does; Rust's own shortest form may take the odd one.
fn shortest(value: f64) -> String {
    let any = format!("{value:e}");
    let mantissa = any.split('e').next().unwrap_or_default();
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).count();
    // With a precision Rust rounds the exact value, half to even.
    let even = format!("{value:.*e}", digits.saturating_sub(1));
    // Just above a power of two the nearest digits may belong to the neighbour below.
    if even.parse() == Ok(value) { even } else { any }
}
