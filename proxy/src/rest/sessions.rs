//! A session's life.

use std::sync::Arc;

use axum::{Json as Body, extract::State};
use serde::Deserialize;
use undolog_proto::v1;
use utoipa::{IntoParams, ToSchema};

use super::{
    answer::Errors,
    asked::{Page, list as listed},
    extract::{Asked, Named, Told},
    json::{Json, Object, bytes_of},
    shown::{
        BeginResponse, CompleteResponse, FailSessionResponse, GetSessionResponse,
        HeartbeatResponse, ListEffectsResponse, ListSessionsResponse, SavepointResponse,
    },
};
use crate::{
    call::{Caller, rpc},
    error::Refused,
    service::Proxy,
};

/// A session to be begun.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BeginBody {
    /// Its id (uuid); left out: `X-UndoLog-Session-Id`, else the engine makes one.
    #[schema(format = Uuid)]
    session_id: Option<String>,
    agent_name: Option<String>,
    /// The framework's own id of the run.
    external_run_id: Option<String>,
    /// A project, by uuid or name.
    project: Option<String>,
    /// An object of the caller's own.
    #[schema(value_type = Option<serde_json::Value>)]
    metadata: Option<Json>,
    /// How long the session may be silent, at least 300; left out: 300.
    lease_seconds: Option<u32>,
    /// `rollback` or `continue`; left out: the organisation's policy.
    on_tool_failure: Option<String>,
    /// `halt`, `rollback` or `continue`; left out: the organisation's policy.
    on_rejection: Option<String>,
    /// `rollback` or `hold`; left out: `rollback`.
    on_unknown: Option<String>,
}

/// Begins a session with a lease. With an id of the caller's own it may be asked again.
#[utoipa::path(post, path = "/sessions", tag = "sessions", request_body = BeginBody,
    responses((status = 200, body = BeginResponse), Errors))]
pub(super) async fn begin(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Told(body): Told<BeginBody>,
) -> Result<Body<BeginResponse>, Refused> {
    let session_id = caller.session(body.session_id);
    // Without an id a second try would begin a second session.
    let is_named = !session_id.is_empty();
    let request = v1::BeginRequest {
        org_id: String::new(),
        session_id,
        agent_name: body.agent_name.unwrap_or_default(),
        external_run_id: body.external_run_id.unwrap_or_default(),
        project: body.project.unwrap_or_default(),
        metadata: bytes_of(body.metadata),
        lease_seconds: body.lease_seconds.unwrap_or_default(),
        on_tool_failure: body.on_tool_failure.unwrap_or_default(),
        on_rejection: body.on_rejection.unwrap_or_default(),
        on_unknown: body.on_unknown.unwrap_or_default(),
    };
    let reply = if is_named {
        rpc!(caller.again: proxy.sessions().begin(request))?
    } else {
        rpc!(caller.once: proxy.sessions().begin(request))?
    };
    Ok(Body(reply.into()))
}

/// Which sessions.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    /// States, separated by commas; left out: all.
    #[serde(default)]
    state: String,
    /// Of this run of a framework only.
    #[serde(default)]
    external_run_id: String,
    /// Rows of a page, at most 500; left out or 0: 100.
    #[serde(default)]
    page_size: u32,
    /// `next_page_token` of the page before.
    #[serde(default)]
    page_token: String,
}

/// Lists sessions, newest first.
#[utoipa::path(get, path = "/sessions", tag = "sessions", params(Which),
    responses((status = 200, body = ListSessionsResponse), Errors))]
pub(super) async fn list(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Asked(which): Asked<Which>,
) -> Result<Body<ListSessionsResponse>, Refused> {
    let request = v1::ListSessionsRequest {
        org_id: String::new(),
        states: listed(&which.state),
        page_size: which.page_size,
        page_token: which.page_token,
        external_run_id: which.external_run_id,
    };
    let reply = rpc!(caller.again: proxy.sessions().list(request))?;
    Ok(Body(reply.into()))
}

/// Which pages of what belongs to a session.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct DetailPages {
    /// `undo_next_page_token` of the answer before.
    #[serde(default)]
    undo_page_token: String,
    /// `rollbacks_next_page_token` of the answer before.
    #[serde(default)]
    rollbacks_page_token: String,
    /// `dead_letters_next_page_token` of the answer before.
    #[serde(default)]
    dead_letters_page_token: String,
}

/// Shows a session with its undo stack, rollbacks and dead letters.
#[utoipa::path(get, path = "/sessions/{id}", tag = "sessions",
    params(("id" = String, Path, format = Uuid, description = "The session"), DetailPages),
    responses((status = 200, body = GetSessionResponse), Errors))]
pub(super) async fn get(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Named(session_id): Named,
    Asked(pages): Asked<DetailPages>,
) -> Result<Body<GetSessionResponse>, Refused> {
    let request = v1::GetSessionRequest {
        org_id: String::new(),
        session_id,
        undo_page_token: pages.undo_page_token,
        rollbacks_page_token: pages.rollbacks_page_token,
        dead_letters_page_token: pages.dead_letters_page_token,
    };
    let reply = rpc!(caller.again: proxy.sessions().get(request))?;
    Ok(Body(reply.into()))
}

/// Lists a session's calls.
#[utoipa::path(get, path = "/sessions/{id}/effects", tag = "sessions",
    params(("id" = String, Path, format = Uuid, description = "The session"), Page),
    responses((status = 200, body = ListEffectsResponse), Errors))]
pub(super) async fn effects(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Named(session_id): Named,
    Asked(page): Asked<Page>,
) -> Result<Body<ListEffectsResponse>, Refused> {
    let request = v1::ListEffectsRequest {
        org_id: String::new(),
        session_id,
        page_size: page.page_size,
        page_token: page.page_token,
    };
    let reply = rpc!(caller.again: proxy.sessions().list_effects(request))?;
    Ok(Body(reply.into()))
}

/// What still runs.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HeartbeatBody {
    /// Calls that still run, at most 500.
    #[serde(default)]
    #[schema(value_type = Vec<GrantRef>)]
    grants: Vec<Object<GrantRef>>,
}

/// One call that still runs.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct GrantRef {
    effect_id: String,
    attempt: u32,
}

/// Renews a session's lease and its grants.
#[utoipa::path(post, path = "/sessions/{id}/heartbeat", tag = "sessions",
    request_body = HeartbeatBody,
    params(("id" = String, Path, format = Uuid, description = "The session")),
    responses((status = 200, body = HeartbeatResponse), Errors))]
pub(super) async fn heartbeat(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Named(session_id): Named,
    Told(body): Told<HeartbeatBody>,
) -> Result<Body<HeartbeatResponse>, Refused> {
    let grants = body.grants.into_iter();
    let grants =
        grants.map(|Object(g)| v1::GrantRef { effect_id: g.effect_id, attempt: g.attempt });
    let request =
        v1::HeartbeatRequest { org_id: String::new(), session_id, grants: grants.collect() };
    let reply = rpc!(caller.again: proxy.heartbeats().heartbeat(request))?;
    Ok(Body(reply.into()))
}

/// How a session is completed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CompleteBody {
    /// Complete although outcomes are unknown.
    #[serde(default)]
    accept_unknown: bool,
}

/// Completes a session.
#[utoipa::path(post, path = "/sessions/{id}/complete", tag = "sessions",
    request_body = CompleteBody,
    params(("id" = String, Path, format = Uuid, description = "The session")),
    responses((status = 200, body = CompleteResponse), Errors))]
pub(super) async fn complete(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Named(session_id): Named,
    Told(body): Told<CompleteBody>,
) -> Result<Body<CompleteResponse>, Refused> {
    let request = v1::CompleteRequest {
        org_id: String::new(),
        session_id,
        accept_unknown: body.accept_unknown,
    };
    let reply = rpc!(caller.once: proxy.sessions().complete(request))?;
    Ok(Body(reply.into()))
}

/// Why a session fails.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FailSessionBody {
    /// For people.
    #[serde(default)]
    reason: String,
    /// Undo what it did; left out: yes.
    rollback: Option<bool>,
}

/// Fails a session and, unless told otherwise, rolls it back.
#[utoipa::path(post, path = "/sessions/{id}/fail", tag = "sessions",
    request_body = FailSessionBody,
    params(("id" = String, Path, format = Uuid, description = "The session")),
    responses((status = 200, body = FailSessionResponse), Errors))]
pub(super) async fn fail(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Named(session_id): Named,
    Told(body): Told<FailSessionBody>,
) -> Result<Body<FailSessionResponse>, Refused> {
    let request = v1::FailSessionRequest {
        org_id: String::new(),
        session_id,
        reason: body.reason,
        rollback: body.rollback.unwrap_or(true),
    };
    let reply = rpc!(caller.once: proxy.sessions().fail_session(request))?;
    Ok(Body(reply.into()))
}

/// A savepoint.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SavepointBody {
    /// Shown in the history.
    #[serde(default)]
    name: String,
}

/// Marks a place to come back to.
#[utoipa::path(post, path = "/sessions/{id}/savepoint", tag = "sessions",
    request_body = SavepointBody,
    params(("id" = String, Path, format = Uuid, description = "The session")),
    responses((status = 200, body = SavepointResponse), Errors))]
pub(super) async fn savepoint(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Named(session_id): Named,
    Told(body): Told<SavepointBody>,
) -> Result<Body<SavepointResponse>, Refused> {
    let request = v1::SavepointRequest { org_id: String::new(), session_id, name: body.name };
    let reply = rpc!(caller.once: proxy.sessions().savepoint(request))?;
    Ok(Body(reply.into()))
}
