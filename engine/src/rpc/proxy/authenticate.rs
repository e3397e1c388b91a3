//! Authenticate: whose key a call holds, as the gate found out.

use tonic::{Request, Status};
use undolog_core::reason::Reason;
use undolog_proto::v1;

use crate::{
    gate::{Admitted, Presented},
    status,
};

pub(super) fn run(
    request: &Request<v1::AuthenticateRequest>,
) -> Result<v1::AuthenticateResponse, Status> {
    // Without the gate's word nothing is served, whatever else was mounted.
    let admitted = request.extensions().get::<Admitted>();
    match admitted.map(|admitted| &admitted.presented) {
        None => Err(status::of_reason(Reason::Unauthenticated)),
        Some(Presented::Dev) => Ok(v1::AuthenticateResponse::default()),
        Some(Presented::Key(identity)) => Ok(v1::AuthenticateResponse {
            org_id: identity.org_id.to_string(),
            org_slug: identity.org_slug.clone(),
            key_id: identity.key_id.to_string(),
            principal: identity.principal.clone(),
            role: identity.role.to_string(),
        }),
    }
}
