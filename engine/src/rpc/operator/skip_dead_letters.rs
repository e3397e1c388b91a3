//! SkipDeadLetters: what stays undone, for a reason.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::operate::skip_all;

use super::filter;
use crate::call::{Call, Engine};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::SkipDeadLettersRequest>,
) -> Result<v1::DeadLettersChanged, Status> {
    let org_id = call.caller.org_id;
    let request = call.message;
    let filter = filter::dead_letters(request.filter)?;
    let (store, reason, dry_run) = (engine.store.clone(), request.reason, request.dry_run);
    let settling = async move { skip_all(&store, &call.caller, &filter, reason, dry_run).await };
    // A caller that goes away does not leave half of them: the work goes on in its own task.
    let changed = engine.detached(settling).await?;
    Ok(filter::changed(engine, org_id, changed))
}
