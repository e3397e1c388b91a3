//! Get: a session with its undo stack, rollbacks and dead letters.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::read;

use super::{fit::row, shown};
use crate::{
    call::{Call, Engine},
    convert::uuid,
};

/// One entry or dead letter: with several lists in one answer none may fill it by itself.
const ROW_BYTES: usize = 2 * 1024 * 1024;

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::GetSessionRequest>,
) -> Result<v1::GetSessionResponse, Status> {
    let session_id = uuid("session_id", &call.message.session_id)?;
    let pages = read::DetailPages {
        undo: call.message.undo_page_token,
        rollbacks: call.message.rollbacks_page_token,
        dead_letters: call.message.dead_letters_page_token,
    };
    let store = engine.store.clone();
    let reading = async move { read::get_session(&store, &call.caller, session_id, &pages).await };
    let detail = engine.read(reading).await?;
    let entries = detail.undo_stack.rows.into_iter().map(shown::undo_entry);
    let letters = detail.dead_letters.rows.into_iter().map(shown::dead_letter);
    Ok(v1::GetSessionResponse {
        session: Some(shown::session(detail.session)),
        undo_stack: entries.map(|entry| row(entry, ROW_BYTES)).collect(),
        rollbacks: detail.rollbacks.rows.into_iter().map(shown::rollback).collect(),
        dead_letters: letters.map(|letter| row(letter, ROW_BYTES)).collect(),
        undo_next_page_token: detail.undo_stack.next_token,
        rollbacks_next_page_token: detail.rollbacks.next_token,
        dead_letters_next_page_token: detail.dead_letters.next_token,
    })
}
