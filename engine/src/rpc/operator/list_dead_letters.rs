//! ListDeadLetters: what only a human can settle, the newest first.

use std::sync::Arc;

use tonic::Status;
use undolog_core::limits::ROW_BYTES_MAX;
use undolog_proto::v1;
use undolog_store::{operate::list_dead_letters, read::Paging};

use super::{super::fit::row, filter, shown};
use crate::call::{Call, Engine};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::ListDeadLettersRequest>,
) -> Result<v1::ListDeadLettersResponse, Status> {
    let request = call.message;
    let filter = filter::dead_letters(request.filter)?;
    let closed = request.closed;
    let paging = Paging { size: request.page_size, token: request.page_token };
    let store = engine.store.clone();
    let reading =
        async move { list_dead_letters(&store, &call.caller, &filter, closed, &paging).await };
    let page = engine.read(reading).await?;
    Ok(v1::ListDeadLettersResponse {
        dead_letters: page.rows.into_iter().map(shown::dead_letter).map(fitting).collect(),
        next_page_token: page.next_token,
    })
}

/// What became of it can be as long as the error of its entry: half a row each.
fn fitting(mut item: v1::DeadLetterItem) -> v1::DeadLetterItem {
    item.dead_letter = item.dead_letter.map(|letter| row(letter, ROW_BYTES_MAX / 2));
    item
}
