//! List: sessions, the newest first.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::read::{self, Paging, SessionFilter};

use super::shown;
use crate::call::{Call, Engine};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::ListSessionsRequest>,
) -> Result<v1::ListSessionsResponse, Status> {
    let request = call.message;
    let filter = SessionFilter { states: request.states, external_run_id: request.external_run_id };
    let paging = Paging { size: request.page_size, token: request.page_token };
    let store = engine.store.clone();
    let reading = async move { read::list_sessions(&store, &call.caller, &filter, &paging).await };
    let page = engine.read(reading).await?;
    Ok(v1::ListSessionsResponse {
        sessions: page.rows.into_iter().map(shown::session).collect(),
        next_page_token: page.next_token,
    })
}
