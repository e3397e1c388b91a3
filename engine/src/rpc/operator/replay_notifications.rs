//! ReplayNotifications: webhooks that were given up are sent again.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::operate::ReplayNotifications;

use crate::{
    call::{Call, Engine},
    convert::{count, invalid, uuid},
};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::ReplayNotificationsRequest>,
) -> Result<v1::ReplayNotificationsResponse, Status> {
    let request = call.message;
    let named = request.notification_ids.iter().map(|id| uuid("notification_ids", id));
    let named = named.collect::<Result<Vec<_>, _>>()?;
    let notification_ids = match (request.all, named.is_empty()) {
        (true, true) => None,
        (false, false) => Some(named),
        _ => return Err(invalid("name notifications, or all of them, and not both")),
    };
    let step = ReplayNotifications { caller: call.caller, notification_ids };
    let replayed = engine.run(step).await?;
    Ok(v1::ReplayNotificationsResponse { replayed: count(replayed.replayed), more: replayed.more })
}
