//! JSON from outside, between its exact form and what Postgres stores.

use undolog_core::json::{Node, Stored, canonical, from_stored, parse_lossless, to_jsonb};

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

/// Names and keys refuse NUL: Postgres could not keep them.
pub fn refuse_nul(field: &'static str, text: &str) -> Result<(), StepError> {
    if text.contains('\0') {
        let why = format!("{field} must not contain U+0000");
        return Err(StepError::refuse(undolog_core::Reason::InvalidArgument, why));
    }
    Ok(())
}
