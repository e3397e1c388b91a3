//! GetDeadLetter: a dead letter with each call that was made and the one that a retry would make.

use std::sync::Arc;

use prost::Message as _;
use tonic::Status;
use undolog_core::limits::GRPC_MESSAGE_BYTES_MAX;
use undolog_proto::v1;
use undolog_store::operate::get_dead_letter;

use super::{super::rollback::planned, super::shown as rows, shown};
use crate::{
    call::{Call, Engine},
    convert::{count, uuid},
};

/// What stands around everything that can be large: names, ids, times, texts of bounded length.
const ENVELOPE_BYTES: usize = 512 * 1024;
/// Room for the calls that were made.
const ATTEMPTS_BYTES: usize = 1024 * 1024;
/// What stands around one call in the answer.
const FRAME_BYTES: usize = 8;
/// What the large fields and the calls may take together.
const BYTES_MAX: usize = GRPC_MESSAGE_BYTES_MAX - ENVELOPE_BYTES;

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::GetDeadLetterRequest>,
) -> Result<v1::GetDeadLetterResponse, Status> {
    let dead_letter_id = uuid("dead_letter_id", &call.message.dead_letter_id)?;
    let store = engine.store.clone();
    let reading = async move { get_dead_letter(&store, &call.caller, dead_letter_id).await };
    let mut detail = engine.read(reading).await?;
    if let Some(preview) = detail.next_call.as_mut().and_then(|call| call.preview.as_mut()) {
        preview.fit(usize::MAX);
    }
    let calls = detail.item.attempts;
    let mut answer = v1::GetDeadLetterResponse {
        item: Some(shown::dead_letter(detail.item)),
        entry: detail.entry.map(rows::undo_entry),
        effect: Some(rows::effect(detail.effect)),
        attempts: detail.attempts.into_iter().map(shown::undo_attempt).collect(),
        next_call: detail.next_call.map(planned),
        attempts_left_out: 0,
        fields_left_out: Vec::new(),
    };
    fit(&mut answer, BYTES_MAX);
    answer.attempts_left_out = count(calls).saturating_sub(count(answer.attempts.len()));
    Ok(answer)
}

/// Leaves out what does not fit: first what stands elsewhere in the answer or in the list of the
/// session's effects, the oldest calls, and last what a retry would send. One message has room for
/// arguments and a result of the largest size, but not for both of them twice.
fn fit(answer: &mut v1::GetDeadLetterResponse, bytes_max: usize) {
    let mut left_out = Vec::new();
    {
        let v1::GetDeadLetterResponse { entry, effect, next_call, attempts, .. } = answer;
        let mut fields: Vec<(&str, &mut Vec<u8>)> = Vec::new();
        if let Some(effect) = effect {
            fields.push(("effect.compensation_args", &mut effect.compensation_args));
            fields.push(("effect.result", &mut effect.result));
            fields.push(("effect.args", &mut effect.args));
        }
        if let Some(entry) = entry {
            fields.push(("entry.compensation_args", &mut entry.compensation_args));
        }
        if let Some(next_call) = next_call {
            fields.push(("next_call.body", &mut next_call.body));
        }
        let sizes: usize = fields.iter().map(|(_, bytes)| bytes.len()).sum();
        let mut over = sizes.saturating_sub(bytes_max - ATTEMPTS_BYTES);
        for (name, bytes) in fields {
            if over > 0 && !bytes.is_empty() {
                over = over.saturating_sub(bytes.len());
                bytes.clear();
                left_out.push(name.to_owned());
            }
        }
        let mut room = ATTEMPTS_BYTES;
        let fitting = attempts.iter().take_while(|attempt| {
            let size = attempt.encoded_len() + FRAME_BYTES;
            let fits = size <= room;
            room = room.saturating_sub(size);
            fits
        });
        let fitting = fitting.count();
        attempts.truncate(fitting);
    }
    answer.fields_left_out = left_out;
}
