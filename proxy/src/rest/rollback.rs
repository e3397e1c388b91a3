//! `POST /sessions/{id}/rollback`.

use std::sync::Arc;

use axum::{Json as Body, extract::State};
use serde::Deserialize;
use undolog_proto::v1::{self, rollback_request::Scope};
use utoipa::ToSchema;

use super::{
    answer::Errors,
    extract::{Named, Told},
    shown::RollbackResponse,
};
use crate::{
    call::{Caller, rpc},
    error::Refused,
    service::Proxy,
};

/// What is undone.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RollbackBody {
    /// For people.
    #[serde(default)]
    reason: String,
    /// Undo from this savepoint on.
    to_savepoint: Option<u32>,
    /// Undo the steps after this one.
    to_step: Option<u32>,
    /// Go on although irreversible calls stay.
    #[serde(default)]
    allow_residue: bool,
    /// Only show what would be done.
    #[serde(default)]
    dry_run: bool,
    /// Of a dry run: `next_page_token` of the page before.
    #[serde(default)]
    page_token: String,
}

/// Undoes a session: all of it, or from a savepoint or a step on.
#[utoipa::path(post, path = "/sessions/{id}/rollback", tag = "sessions",
    request_body = RollbackBody,
    params(("id" = String, Path, format = Uuid, description = "The session")),
    responses((status = 200, body = RollbackResponse), Errors))]
pub(super) async fn rollback(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Named(session_id): Named,
    Told(body): Told<RollbackBody>,
) -> Result<Body<RollbackResponse>, Refused> {
    let scope = match (body.to_savepoint, body.to_step) {
        (None, None) => None,
        (Some(position), None) => Some(Scope::ToSavepoint(position)),
        (None, Some(step_index)) => Some(Scope::ToStep(step_index)),
        (Some(_), Some(_)) => {
            return Err(Refused::malformed("a rollback goes to a savepoint or to a step"));
        }
    };
    let dry_run = body.dry_run;
    let request = v1::RollbackRequest {
        org_id: String::new(),
        session_id,
        reason: body.reason,
        scope,
        allow_residue: body.allow_residue,
        dry_run,
        page_token: body.page_token,
    };
    let reply = if dry_run {
        rpc!(caller.again: proxy.sessions().rollback(request))?
    } else {
        rpc!(caller.once: proxy.sessions().rollback(request))?
    };
    Ok(Body(reply.into()))
}
