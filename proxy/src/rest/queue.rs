//! The queue: what is due, and whether it may run.

use std::sync::Arc;

use axum::{Json as Body, extract::State};
use serde::Deserialize;
use undolog_proto::v1;
use utoipa::{IntoParams, ToSchema};

use super::{
    answer::Errors,
    extract::{Asked, Told},
    shown::QueueStatus,
};
use crate::{
    call::{Caller, rpc},
    error::Refused,
    service::Proxy,
};

/// Which page of pauses and breakers.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct QueuePage {
    /// `next_page_token` of the answer before.
    #[serde(default)]
    page_token: String,
}

/// Shows what is due, running and dead.
#[utoipa::path(get, path = "/queue", tag = "operators",
    params(QueuePage), responses((status = 200, body = QueueStatus), Errors))]
pub(super) async fn status(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Asked(page): Asked<QueuePage>,
) -> Result<Body<QueueStatus>, Refused> {
    let page_token = page.page_token;
    let request = v1::GetQueueStatusRequest { org_id: String::new(), page_token };
    let reply = rpc!(caller.again: proxy.operator().get_queue_status(request))?;
    Ok(Body(reply.into()))
}

/// What is paused.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PauseBody {
    /// One compensation; left out: all of the organisation's.
    #[serde(default)]
    compensation_fn: String,
    /// Why.
    #[serde(default)]
    reason: String,
}

/// Pauses compensations.
#[utoipa::path(post, path = "/queue/pause", tag = "operators", request_body = PauseBody,
    responses((status = 200, body = QueueStatus), Errors))]
pub(super) async fn pause(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Told(body): Told<PauseBody>,
) -> Result<Body<QueueStatus>, Refused> {
    let request = v1::PauseQueueRequest {
        org_id: String::new(),
        compensation_fn: body.compensation_fn,
        reason: body.reason,
    };
    let reply = rpc!(caller.once: proxy.operator().pause_queue(request))?;
    Ok(Body(reply.into()))
}

/// What is resumed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResumeBody {
    /// One compensation; left out: all of the organisation's.
    #[serde(default)]
    compensation_fn: String,
}

/// Resumes compensations.
#[utoipa::path(post, path = "/queue/resume", tag = "operators", request_body = ResumeBody,
    responses((status = 200, body = QueueStatus), Errors))]
pub(super) async fn resume(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Told(body): Told<ResumeBody>,
) -> Result<Body<QueueStatus>, Refused> {
    let request =
        v1::ResumeQueueRequest { org_id: String::new(), compensation_fn: body.compensation_fn };
    let reply = rpc!(caller.once: proxy.operator().resume_queue(request))?;
    Ok(Body(reply.into()))
}

/// Which breakers are closed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CloseBreakerBody {
    /// Of one compensation; left out: of every one.
    #[serde(default)]
    compensation_fn: String,
    /// At one host, as the queue's status names it; left out: at every one.
    #[serde(default)]
    host: String,
}

/// Calls an endpoint again at once whose calls failed.
#[utoipa::path(post, path = "/queue/close-breaker", tag = "operators",
    request_body = CloseBreakerBody, responses((status = 200, body = QueueStatus), Errors))]
pub(super) async fn close_breaker(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Told(body): Told<CloseBreakerBody>,
) -> Result<Body<QueueStatus>, Refused> {
    let request = v1::CloseBreakerRequest {
        org_id: String::new(),
        compensation_fn: body.compensation_fn,
        host: body.host,
    };
    let reply = rpc!(caller.once: proxy.operator().close_breaker(request))?;
    Ok(Body(reply.into()))
}
