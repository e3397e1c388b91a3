//! Irreversible calls that wait for a human.

use std::sync::Arc;

use axum::{Json as Body, extract::State};
use serde::{Deserialize, Serialize};
use undolog_proto::v1;
use utoipa::{IntoParams, ToSchema};

use super::{
    answer::Errors,
    asked::list as listed,
    extract::{Asked, Named, Told},
    json::{Json, bytes_of},
    shown::{ApproveResponse, GetApprovalResponse, ListApprovalsResponse, RevokeApprovalResponse},
};
use crate::{
    call::{Caller, rpc},
    error::Refused,
    service::Proxy,
};

/// Which approval requests.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    /// States, separated by commas; left out: `pending`.
    #[serde(default)]
    state: String,
    /// Of this session only.
    #[serde(default)]
    session_id: String,
    /// Rows of a page, at most 500; left out or 0: 100.
    #[serde(default)]
    page_size: u32,
    /// `next_page_token` of the page before.
    #[serde(default)]
    page_token: String,
}

/// Lists approval requests.
#[utoipa::path(get, path = "/approvals", tag = "approvals", params(Which),
    responses((status = 200, body = ListApprovalsResponse), Errors))]
pub(super) async fn list(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Asked(which): Asked<Which>,
) -> Result<Body<ListApprovalsResponse>, Refused> {
    let request = v1::ListApprovalsRequest {
        org_id: String::new(),
        states: listed(&which.state),
        session_id: which.session_id,
        page_size: which.page_size,
        page_token: which.page_token,
    };
    let reply = rpc!(caller.again: proxy.operator().list_approvals(request))?;
    Ok(Body(reply.into()))
}

/// Which page of a request's history.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsPage {
    /// `events_next_page_token` of the answer before.
    #[serde(default)]
    events_page_token: String,
}

/// Shows an approval request with its history.
#[utoipa::path(get, path = "/approvals/{id}", tag = "approvals",
    params(("id" = String, Path, format = Uuid, description = "The request"), EventsPage),
    responses((status = 200, body = GetApprovalResponse), Errors))]
pub(super) async fn get(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Named(approval_id): Named,
    Asked(page): Asked<EventsPage>,
) -> Result<Body<GetApprovalResponse>, Refused> {
    let events_page_token = page.events_page_token;
    let request = v1::GetApprovalRequest { org_id: String::new(), approval_id, events_page_token };
    let reply = rpc!(caller.again: proxy.operator().get_approval(request))?;
    Ok(Body(reply.into()))
}

/// An approval.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ApproveBody {
    /// Who approves, kept beside the key's own principal.
    actor: Option<String>,
    /// Other arguments than the proposed ones.
    #[schema(value_type = Option<serde_json::Value>)]
    approved_args: Option<Json>,
    /// Why.
    note: Option<String>,
}

/// Approves a call: it may run once.
#[utoipa::path(post, path = "/approvals/{id}/approve", tag = "approvals",
    request_body = ApproveBody,
    params(("id" = String, Path, format = Uuid, description = "The request")),
    responses((status = 200, body = ApproveResponse), Errors))]
pub(super) async fn approve(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Named(approval_id): Named,
    Told(body): Told<ApproveBody>,
) -> Result<Body<ApproveResponse>, Refused> {
    let request = v1::ApproveRequest {
        approval_id,
        org_id: String::new(),
        actor: body.actor.unwrap_or_default(),
        approved_args: bytes_of(body.approved_args),
        note: body.note.unwrap_or_default(),
    };
    let reply = rpc!(caller.once: proxy.engine().approve(request))?;
    proxy.approved.notify_waiters();
    Ok(Body(reply.into()))
}

/// A rejection.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RejectBody {
    /// Who rejects, kept beside the key's own principal.
    actor: Option<String>,
    /// Why.
    note: Option<String>,
}

/// A rejected request.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Rejected {
    approval_id: String,
    /// Always `rejected`.
    state: &'static str,
}

/// Rejects a call: it never runs.
#[utoipa::path(post, path = "/approvals/{id}/reject", tag = "approvals",
    request_body = RejectBody,
    params(("id" = String, Path, format = Uuid, description = "The request")),
    responses((status = 200, body = Rejected), Errors))]
pub(super) async fn reject(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Named(approval_id): Named,
    Told(body): Told<RejectBody>,
) -> Result<Body<Rejected>, Refused> {
    let request = v1::RejectRequest {
        approval_id: approval_id.clone(),
        org_id: String::new(),
        actor: body.actor.unwrap_or_default(),
        note: body.note.unwrap_or_default(),
    };
    rpc!(caller.once: proxy.engine().reject(request))?;
    Ok(Body(Rejected { approval_id, state: "rejected" }))
}

/// A change of mind.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RevokeBody {
    /// Why.
    note: Option<String>,
}

/// Takes an approval back that was not used.
#[utoipa::path(post, path = "/approvals/{id}/revoke", tag = "approvals",
    request_body = RevokeBody,
    params(("id" = String, Path, format = Uuid, description = "The request")),
    responses((status = 200, body = RevokeApprovalResponse), Errors))]
pub(super) async fn revoke(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Named(approval_id): Named,
    Told(body): Told<RevokeBody>,
) -> Result<Body<RevokeApprovalResponse>, Refused> {
    let request = v1::RevokeApprovalRequest {
        org_id: String::new(),
        approval_id,
        note: body.note.unwrap_or_default(),
    };
    let reply = rpc!(caller.once: proxy.operator().revoke_approval(request))?;
    Ok(Body(reply.into()))
}
