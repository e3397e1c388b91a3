//! Get: a session with its undo stack, rollbacks and dead letters.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::read;

use super::shown;
use crate::{
    call::{Call, Engine},
    convert::uuid,
};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::GetSessionRequest>,
) -> Result<v1::GetSessionResponse, Status> {
    let session_id = uuid("session_id", &call.message.session_id)?;
    let store = engine.store.clone();
    let reading = async move { read::get_session(&store, &call.caller, session_id).await };
    let detail = engine.read(reading).await?;
    Ok(v1::GetSessionResponse {
        session: Some(shown::session(detail.session)),
        undo_stack: detail.undo_stack.into_iter().map(shown::undo_entry).collect(),
        rollbacks: detail.rollbacks.into_iter().map(shown::rollback).collect(),
        dead_letters: detail.dead_letters.into_iter().map(shown::dead_letter).collect(),
    })
}
