//! Reads and checks the JSON of a probe.

use super::Probe;
use crate::{
    answer::{Pointer, statuses},
    fn_body::{FnBody, FnBodyError, Method},
    json::Node,
    template::Placeholder,
};

/// Fields that a probe shares with a compensation.
const CALL_FIELDS: [&str; 7] =
    ["kind", "method", "endpoint", "headers", "arg_mapping", "body", "timeout_ms"];
/// The longest time that one question may take.
const TIMEOUT_MS_MAX: u64 = 30_000;

/// Why a probe is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// Not a JSON object.
    #[error("it must be a JSON object")]
    NotAnObject,
    /// A field that does not exist.
    #[error("there is no field {0:?}")]
    UnknownField(String),
    /// What is asked cannot be asked.
    #[error(transparent)]
    Call(#[from] FnBodyError),
    /// A field with a value that it cannot have.
    #[error("{field} must be {expected}")]
    Field {
        /// The field.
        field: &'static str,
        /// What it may be.
        expected: &'static str,
    },
    /// A placeholder that has no value when nobody knows the outcome.
    #[error("{0} does not exist in a probe")]
    Placeholder(String),
}

impl Probe {
    /// Reads and checks a probe.
    ///
    /// # Errors
    /// An unknown field, a missing one, or a value that a field cannot have.
    pub fn parse(node: &Node) -> Result<Self, ProbeError> {
        let Node::Object(members) = node else { return Err(ProbeError::NotAnObject) };
        let mut call = Vec::new();
        for (key, value) in members {
            match key.as_str() {
                "happened" | "did_not_happen" => {}
                known if CALL_FIELDS.contains(&known) => call.push((key.clone(), value.clone())),
                other => return Err(ProbeError::UnknownField(other.chars().take(64).collect())),
            }
        }
        let call = FnBody::parse(&Node::Object(call))?;
        if !matches!(call.method, Method::Get | Method::Post) {
            return Err(bad("method", "GET or POST"));
        }
        if call.timeout_ms > TIMEOUT_MS_MAX {
            return Err(bad("timeout_ms", "at most 30000"));
        }
        refuse_placeholders(&call)?;
        let happened = answer(node, "happened", &["status", "result"])?;
        let did_not_happen = answer(node, "did_not_happen", &["status"])?;
        if happened.iter().any(|status| did_not_happen.contains(status)) {
            return Err(bad("did_not_happen.status", "without the statuses of happened"));
        }
        let result = match node.member("happened").and_then(|answer| answer.member("result")) {
            None | Some(Node::Null) => None,
            Some(pointer) => Some(pointer_of(pointer)?),
        };
        Ok(Self { call, happened, result, did_not_happen })
    }
}

const fn bad(field: &'static str, expected: &'static str) -> ProbeError {
    ProbeError::Field { field, expected }
}

fn refuse_placeholders(call: &FnBody) -> Result<(), ProbeError> {
    let refused = [
        ("{result}", call.needs_result()),
        ("{comp}", call.any(|p| matches!(p, Placeholder::Comp(_)))),
        ("{undo_id}", call.any(|p| matches!(p, Placeholder::UndoId))),
    ];
    match refused.iter().find(|(_, is_used)| *is_used) {
        Some((name, _)) => Err(ProbeError::Placeholder((*name).to_owned())),
        None => Ok(()),
    }
}

/// The statuses of one of the two answers. Both are needed, since a probe that can only say one of
/// them would be believed when it merely fails.
fn answer(node: &Node, field: &'static str, known: &[&str]) -> Result<Vec<u16>, ProbeError> {
    let expected = "an object with status, an array of HTTP statuses from 200 to 599";
    let Some(Node::Object(members)) = node.member(field) else { return Err(bad(field, expected)) };
    if let Some((key, _)) = members.iter().find(|(key, _)| !known.contains(&key.as_str())) {
        return Err(ProbeError::UnknownField(format!("{field}.{}", key.as_str())));
    }
    let listed = node.member(field).and_then(|answer| answer.member("status"));
    listed.and_then(|listed| statuses(listed).ok()).ok_or(bad(field, expected))
}

fn pointer_of(node: &Node) -> Result<Pointer, ProbeError> {
    let expected = "a JSON pointer, such as /charge or the empty text";
    node.as_str().and_then(Pointer::parse).ok_or(bad("happened.result", expected))
}
