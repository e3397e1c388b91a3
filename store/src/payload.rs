//! JSON from outside, between its exact form and what Postgres stores.

use undolog_core::{
    json::{Node, Stored, canonical, from_stored, parse_lossless, to_jsonb},
    limits::TEXT_BYTES_MAX,
    reason::{Reason, Refusal},
};

use crate::error::StepError;

/// Reads a stored value back, exactly.
pub fn read(jsonb_text: &str, raw: Option<&[u8]>) -> Result<Node, StepError> {
    from_stored(jsonb_text, raw).map_err(|error| StepError::Corrupt(error.to_string()))
}

/// The exact text of a stored value.
pub fn text(jsonb_text: &str, raw: Option<&[u8]>) -> Result<Vec<u8>, StepError> {
    match raw {
        Some(bytes) => Ok(bytes.to_vec()),
        None => Ok(canonical(&read(jsonb_text, None)?).into_bytes()),
    }
}

/// A value in the two columns that keep it.
pub fn store(node: &Node, original: &[u8]) -> Stored {
    to_jsonb(node, original)
}

/// A result's output: any JSON text; empty bytes mean `null`.
pub fn parse_output(bytes: &[u8]) -> Result<(Node, Vec<u8>), undolog_core::json::JsonError> {
    let bytes = if bytes.is_empty() { b"null".to_vec() } else { bytes.to_vec() };
    Ok((parse_lossless(&bytes)?, bytes))
}

/// A text for people has a length.
pub fn refuse_long(field: &'static str, text: &str) -> Result<(), StepError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(Refusal::because(Reason::LimitExceeded, format!("{field} is too long"))
            .with("limit_bytes", TEXT_BYTES_MAX)
            .into());
    }
    Ok(())
}

/// A text for people that is kept as it is.
pub fn check_text(field: &'static str, text: &str) -> Result<(), StepError> {
    refuse_nul(field, text)?;
    refuse_long(field, text)
}

/// Names and keys refuse NUL: Postgres could not keep them.
pub fn refuse_nul(field: &'static str, text: &str) -> Result<(), StepError> {
    if text.contains('\0') {
        let why = format!("{field} must not contain U+0000");
        return Err(StepError::refuse(Reason::InvalidArgument, why));
    }
    Ok(())
}
