//! ResolveDeadLetters: what somebody has settled by hand.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::operate::resolve_all;

use super::filter;
use crate::call::{Call, Engine};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::ResolveDeadLettersRequest>,
) -> Result<v1::DeadLettersChanged, Status> {
    let org_id = call.caller.org_id;
    let request = call.message;
    let filter = filter::dead_letters(request.filter)?;
    let (store, note, dry_run) = (engine.store.clone(), request.note, request.dry_run);
    let settling = async move { resolve_all(&store, &call.caller, &filter, note, dry_run).await };
    // A caller that goes away does not leave half of them: the work goes on in its own task.
    let changed = engine.detached(settling).await?;
    Ok(filter::changed(engine, org_id, changed))
}
