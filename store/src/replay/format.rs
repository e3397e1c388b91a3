//! The contents of a snapshot, in MessagePack.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Replayed;

/// The name of this format in its row.
pub(super) const FORMAT: &str = "msgpack";
/// Grows with every change of what is held that an older build could not read.
const VERSION: u16 = 1;
/// A longer result stays in its row alone: fifty of the longest would not fit into a message.
pub(super) const OUTPUT_BYTES_MAX: usize = 32 * 1024;

#[derive(Debug, Serialize, Deserialize)]
struct Contents {
    version: u16,
    held: Vec<Held>,
}

/// One committed effect in a snapshot, and its result's JSON text; `None`: it is read from the row.
type Held = (Replayed, Option<String>);

fn hold(mut call: Replayed) -> Held {
    let output = std::mem::take(&mut call.output);
    let is_short = output.len() <= OUTPUT_BYTES_MAX;
    (call, is_short.then(|| String::from_utf8(output).ok()).flatten())
}

/// The bytes of a snapshot.
pub(super) fn encode(calls: Vec<Replayed>) -> Result<Vec<u8>, rmp_serde::encode::Error> {
    let held = calls.into_iter().map(hold).collect();
    rmp_serde::to_vec_named(&Contents { version: VERSION, held })
}

/// The contents of a snapshot: each call, or the effect whose row has its result. `None`: it was
/// not written by a build that this one understands.
pub(super) fn decode(format: &str, bytes: &[u8]) -> Option<Vec<Result<Replayed, Uuid>>> {
    if format != FORMAT {
        return None;
    }
    let contents: Contents = rmp_serde::from_slice(bytes).ok()?;
    let whole = |(call, output): Held| match output {
        Some(output) => Ok(Replayed { output: output.into_bytes(), ..call }),
        None => Err(call.effect_id),
    };
    (contents.version == VERSION).then(|| contents.held.into_iter().map(whole).collect())
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
        let bytes = encode(calls.to_vec()).unwrap();
        let read = decode(FORMAT, &bytes).unwrap();
        assert_eq!(read, calls.map(Ok));
    }

    #[test]
    fn long_results_stay_in_their_rows() {
        let held = |bytes| hold(call(vec![b'1'; bytes])).1.is_some();
        assert!(held(OUTPUT_BYTES_MAX));
        assert!(!held(OUTPUT_BYTES_MAX + 1));
    }

    #[test]
    fn what_is_not_understood_is_not_believed() {
        let bytes = encode(vec![call(b"1".to_vec())]).unwrap();
        assert!(decode("cbor", &bytes).is_none());
        assert!(decode(FORMAT, &bytes[..bytes.len() - 1]).is_none());
        assert!(decode(FORMAT, b"").is_none());
        let later = rmp_serde::to_vec_named(&Contents { version: VERSION + 1, held: vec![] });
        assert!(decode(FORMAT, &later.unwrap()).is_none());
    }
}
