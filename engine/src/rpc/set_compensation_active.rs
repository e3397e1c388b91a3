//! SetCompensationActive: versions of a compensation are taken out of use, or back into it.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::registry::SetActive;

use crate::call::{Call, Engine};

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::SetCompensationActiveRequest>,
) -> Result<v1::SetCompensationActiveResponse, Status> {
    let request = call.message;
    let step = SetActive::compensation(
        call.caller,
        request.fn_name,
        request.fn_version,
        request.is_active,
    );
    Ok(v1::SetCompensationActiveResponse { changed_versions: engine.run(step).await? })
}
