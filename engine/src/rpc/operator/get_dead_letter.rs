//! GetDeadLetter: a dead letter with each call that was made and the one that a retry would make.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::operate::get_dead_letter;

use super::{super::rollback::planned, super::shown as rows, shown};
use crate::{
    call::{Call, Engine},
    convert::uuid,
};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::GetDeadLetterRequest>,
) -> Result<v1::GetDeadLetterResponse, Status> {
    let dead_letter_id = uuid("dead_letter_id", &call.message.dead_letter_id)?;
    let store = engine.store.clone();
    let reading = async move { get_dead_letter(&store, &call.caller, dead_letter_id).await };
    let detail = engine.read(reading).await?;
    Ok(v1::GetDeadLetterResponse {
        item: Some(shown::dead_letter(detail.item)),
        entry: detail.entry.map(rows::undo_entry),
        effect: Some(rows::effect(detail.effect)),
        attempts: detail.attempts.into_iter().map(shown::undo_attempt).collect(),
        next_call: detail.next_call.map(planned),
    })
}
