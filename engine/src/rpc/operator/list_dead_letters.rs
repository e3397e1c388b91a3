//! ListDeadLetters: what only a human can settle, the newest first.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::{operate::list_dead_letters, read::Paging};

use super::{filter, shown};
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
        dead_letters: page.rows.into_iter().map(shown::dead_letter).collect(),
        next_page_token: page.next_token,
    })
}
