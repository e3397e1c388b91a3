//! The contents of a snapshot, in MessagePack.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Replayed;

/// The name of this format in its row.
pub(super) const FORMAT: &str = "msgpack";
/// Grows with every change of [`Held`] that an older build could not read.
const VERSION: u16 = 1;
/// A longer result stays in its row alone: fifty of the longest would not fit into a message.
pub(super) const OUTPUT_BYTES_MAX: usize = 32 * 1024;

#[derive(Debug, Serialize, Deserialize)]
struct Contents {
    version: u16,
    held: Vec<Held>,
}

/// One committed effect in a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Held {
    pub(super) effect_id: Uuid,
    pub(super) attempt: i32,
    pub(super) position: i32,
    pub(super) step_index: i32,
    pub(super) step_key: Option<String>,
    pub(super) tool_name: String,
    pub(super) tool_version: String,
    pub(super) call_signature: String,
    /// The result's JSON text; `None`: it is read from the effect's row.
    pub(super) output: Option<String>,
    pub(super) duration_ms: u64,
}

impl From<Replayed> for Held {
    fn from(call: Replayed) -> Self {
        let output = (call.output.len() <= OUTPUT_BYTES_MAX)
            .then(|| String::from_utf8(call.output).ok())
            .flatten();
        Self {
            effect_id: call.effect_id,
            attempt: call.attempt,
            position: call.position,
            step_index: call.step_index,
            step_key: call.step_key,
            tool_name: call.tool_name,
            tool_version: call.tool_version,
            call_signature: call.call_signature,
            output,
            duration_ms: call.duration_ms,
        }
    }
}

impl Held {
    /// The call, if its result is held here.
    pub(super) fn into_replayed(self) -> Option<Replayed> {
        Some(Replayed {
            output: self.output?.into_bytes(),
            effect_id: self.effect_id,
            attempt: self.attempt,
            position: self.position,
            step_index: self.step_index,
            step_key: self.step_key,
            tool_name: self.tool_name,
            tool_version: self.tool_version,
            call_signature: self.call_signature,
            duration_ms: self.duration_ms,
        })
    }
}

/// The bytes of a snapshot.
pub(super) fn encode(held: Vec<Held>) -> Result<Vec<u8>, rmp_serde::encode::Error> {
    rmp_serde::to_vec_named(&Contents { version: VERSION, held })
}

/// The contents of a snapshot; `None`: it was not written by a build that this one understands.
pub(super) fn decode(format: &str, bytes: &[u8]) -> Option<Vec<Held>> {
    if format != FORMAT {
        return None;
    }
    let contents: Contents = rmp_serde::from_slice(bytes).ok()?;
    (contents.version == VERSION).then_some(contents.held)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(output: Vec<u8>) -> Replayed {
        Replayed {
            effect_id: Uuid::now_v7(),
            attempt: 2,
            position: 7,
            step_index: i32::MAX,
            step_key: Some("call_\u{fb33}".to_owned()),
            tool_name: "charge".to_owned(),
            tool_version: "1.0.0".to_owned(),
            call_signature: "0".repeat(64),
            output,
            duration_ms: u64::MAX,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let calls = [
            call(b"null".to_vec()),
            call(br#"{"a\u0000":1e400,"b":"\ud800"}"#.to_vec()),
            call("\"\u{1f600}\"".as_bytes().to_vec()),
        ];
        let bytes = encode(calls.iter().cloned().map(Held::from).collect()).unwrap();
        let read = decode(FORMAT, &bytes).unwrap();
        let read: Vec<_> = read.into_iter().filter_map(Held::into_replayed).collect();
        assert_eq!(read, calls);
    }

    #[test]
    fn long_results_stay_in_their_rows() {
        let held = |bytes| Held::from(call(vec![b'1'; bytes])).output.is_some();
        assert!(held(OUTPUT_BYTES_MAX));
        assert!(!held(OUTPUT_BYTES_MAX + 1));
    }

    #[test]
    fn what_is_not_understood_is_not_believed() {
        let bytes = encode(vec![Held::from(call(b"1".to_vec()))]).unwrap();
        assert!(decode("cbor", &bytes).is_none());
        assert!(decode(FORMAT, &bytes[..bytes.len() - 1]).is_none());
        assert!(decode(FORMAT, b"").is_none());
        let later = rmp_serde::to_vec_named(&Contents { version: VERSION + 1, held: vec![] });
        assert!(decode(FORMAT, &later.unwrap()).is_none());
    }
}
