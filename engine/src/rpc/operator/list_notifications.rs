//! ListNotifications: webhooks, those that were given up unless another state is asked for.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::{operate::list_notifications, read::Paging};

use super::shown;
use crate::call::{Call, Engine};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::ListNotificationsRequest>,
) -> Result<v1::ListNotificationsResponse, Status> {
    let request = call.message;
    let paging = Paging { size: request.page_size, token: request.page_token };
    let store = engine.store.clone();
    let reading =
        async move { list_notifications(&store, &call.caller, &request.states, &paging).await };
    let page = engine.read(reading).await?;
    Ok(v1::ListNotificationsResponse {
        notifications: page.rows.into_iter().map(shown::notification).collect(),
        next_page_token: page.next_token,
    })
}
