//! RetryDeadLetters: compensations that were given up go back to work.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::operate::{RetryOptions, retry_all};

use super::filter;
use crate::call::{Call, Engine};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::RetryDeadLettersRequest>,
) -> Result<v1::DeadLettersChanged, Status> {
    let org_id = call.caller.org_id;
    let request = call.message;
    let filter = filter::dead_letters(request.filter)?;
    let options = RetryOptions {
        args: (!request.args.is_empty()).then_some(request.args),
        fresh_key: request.fresh_key,
        note: request.note,
    };
    let (store, dry_run) = (engine.store.clone(), request.dry_run);
    let settling = async move { retry_all(&store, &call.caller, &filter, options, dry_run).await };
    // A caller that goes away does not leave half of them: the work goes on in its own task.
    let changed = engine.detached(settling).await?;
    Ok(filter::changed(engine, org_id, changed))
}
