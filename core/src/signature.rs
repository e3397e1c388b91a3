//! The call signature: BLAKE3 over the documented byte stream.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

/// The version of the byte stream and of the canonical form; it stays on the session.
pub const SIGNATURE_VERSION: i16 = 1;

/// The 32 bytes that name one call: session, step, tool and canonical arguments.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Signature([u8; 32]);

/// A text that is not 64 lower-case hex characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a signature is 64 lower-case hex characters")]
pub struct SignatureError;

/// Signs a call. The lengths are 4 bytes little-endian, as documented; the limits keep both texts
/// far below what these hold.
#[must_use]
pub fn call_signature(
    session: Uuid,
    step_index: u32,
    tool_name: &str,
    canonical_args: &str,
) -> Signature {
    let mut hasher = blake3::Hasher::new();
    hasher.update(session.as_bytes());
    hasher.update(&step_index.to_le_bytes());
    for text in [tool_name, canonical_args] {
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        hasher.update(&length.to_le_bytes());
        hasher.update(text.as_bytes());
    }
    Signature(*hasher.finalize().as_bytes())
}

impl Signature {
    /// The raw bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// From raw bytes, as they are stored.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A 64-bit key for the documented advisory lock: the first eight bytes, big-endian.
    #[must_use]
    pub const fn lock_key(&self) -> i64 {
        let b = &self.0;
        i64::from_be_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]])
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Signature {
    type Err = SignatureError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let nibble = |c: u8| match c {
            b'0'..=b'9' => Ok(c - b'0'),
            b'a'..=b'f' => Ok(c - b'a' + 10),
            _ => Err(SignatureError),
        };
        let text = text.as_bytes();
        if text.len() != 64 {
            return Err(SignatureError);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_is_strict_and_round_trips() {
        let signature = call_signature(Uuid::nil(), 1, "t", "{}");
        let text = signature.to_string();
        assert_eq!(text.parse(), Ok(signature));
        assert_eq!(text.to_uppercase().parse::<Signature>(), Err(SignatureError));
        assert_eq!(text[1..].parse::<Signature>(), Err(SignatureError));
        assert_eq!(format!("{text}0").parse::<Signature>(), Err(SignatureError));
        assert_eq!(format!("{}é", &text[2..]).parse::<Signature>(), Err(SignatureError));
        assert_eq!(Signature::from_bytes(*signature.as_bytes()), signature);
    }

    #[test]
    fn every_part_of_the_call_is_signed_with_its_length() {
        let base = call_signature(Uuid::nil(), 1, "ab", "c");
        assert_ne!(base, call_signature(Uuid::max(), 1, "ab", "c"));
        assert_ne!(base, call_signature(Uuid::nil(), 2, "ab", "c"));
        assert_ne!(base, call_signature(Uuid::nil(), 1, "a", "bc"));
        assert_ne!(base, call_signature(Uuid::nil(), 1, "ab", "d"));
    }
}
