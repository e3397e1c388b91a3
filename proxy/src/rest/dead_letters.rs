//! What only a human can settle.

use std::sync::Arc;

use axum::{Json as Body, extract::State};
use serde::Deserialize;
use undolog_core::reason::Reason;
use undolog_proto::v1;
use utoipa::{IntoParams, ToSchema};

use super::{
    answer::Errors,
    extract::{Asked, Named, Told},
    json::{Json, bytes_of},
    shown::{DeadLettersChanged, GetDeadLetterResponse, ListDeadLettersResponse},
};
use crate::{
    call::{Caller, rpc},
    error::Refused,
    service::Proxy,
};

/// Which dead letters.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    /// Of this session only.
    #[serde(default)]
    session_id: String,
    /// Of this tool only.
    #[serde(default)]
    tool_name: String,
    /// Of this compensation only.
    #[serde(default)]
    compensation_fn: String,
    /// Of this reason only.
    #[serde(default)]
    reason: String,
    /// Older than this only.
    #[serde(default)]
    older_than_seconds: u32,
    /// Settled ones instead of open ones.
    #[serde(default)]
    closed: bool,
    /// Rows of a page, at most 500; left out or 0: 100.
    #[serde(default)]
    page_size: u32,
    /// `next_page_token` of the page before.
    #[serde(default)]
    page_token: String,
}

/// Lists dead letters.
#[utoipa::path(get, path = "/dead-letters", tag = "operators", params(Which),
    responses((status = 200, body = ListDeadLettersResponse), Errors))]
pub(super) async fn list(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Asked(which): Asked<Which>,
) -> Result<Body<ListDeadLettersResponse>, Refused> {
    let request = v1::ListDeadLettersRequest {
        org_id: String::new(),
        filter: Some(v1::DeadLetterFilter {
            dead_letter_ids: Vec::new(),
            session_id: which.session_id,
            tool_name: which.tool_name,
            compensation_fn: which.compensation_fn,
            reason: which.reason,
            older_than_seconds: which.older_than_seconds,
            created_until: None,
            all: false,
        }),
        closed: which.closed,
        page_size: which.page_size,
        page_token: which.page_token,
    };
    let reply = rpc!(caller.again: proxy.operator().list_dead_letters(request))?;
    Ok(Body(reply.into()))
}

/// Shows a dead letter with its call and its attempts.
#[utoipa::path(get, path = "/dead-letters/{id}", tag = "operators",
    params(("id" = String, Path, format = Uuid, description = "The dead letter")),
    responses((status = 200, body = GetDeadLetterResponse), Errors))]
pub(super) async fn get(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Named(dead_letter_id): Named,
) -> Result<Body<GetDeadLetterResponse>, Refused> {
    let request = v1::GetDeadLetterRequest { org_id: String::new(), dead_letter_id };
    let reply = rpc!(caller.again: proxy.operator().get_dead_letter(request))?;
    Ok(Body(reply.into()))
}

fn one(dead_letter_id: String) -> Option<v1::DeadLetterFilter> {
    Some(v1::DeadLetterFilter {
        dead_letter_ids: vec![dead_letter_id],
        ..v1::DeadLetterFilter::default()
    })
}

/// The engine's verbs take many dead letters and say of each what became of it. A route names one,
/// so why it was not changed is the answer.
fn settled(reply: v1::DeadLettersChanged) -> Result<Body<DeadLettersChanged>, Refused> {
    if let [change] = reply.changes.as_slice()
        && !change.changed
    {
        let reason = change.why_not.parse().unwrap_or(Reason::Internal);
        let why = format!("dead letter {}: {}", change.dead_letter_id, reason.explanation());
        return Err(Refused::because(reason, why));
    }
    Ok(Body(reply.into()))
}

/// Another round.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RetryBody {
    /// Other arguments of the compensation.
    #[schema(value_type = Option<serde_json::Value>)]
    args: Option<Json>,
    /// With a new idempotency key.
    #[serde(default)]
    fresh_key: bool,
    /// Why.
    #[serde(default)]
    note: String,
    /// Only show what would be done.
    #[serde(default)]
    dry_run: bool,
}

/// Calls the compensation again; then the walk goes on by itself.
#[utoipa::path(post, path = "/dead-letters/{id}/retry", tag = "operators",
    request_body = RetryBody,
    params(("id" = String, Path, format = Uuid, description = "The dead letter")),
    responses((status = 200, body = DeadLettersChanged), Errors))]
pub(super) async fn retry(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Named(dead_letter_id): Named,
    Told(body): Told<RetryBody>,
) -> Result<Body<DeadLettersChanged>, Refused> {
    let request = v1::RetryDeadLettersRequest {
        org_id: String::new(),
        filter: one(dead_letter_id),
        args: bytes_of(body.args),
        fresh_key: body.fresh_key,
        note: body.note,
        dry_run: body.dry_run,
    };
    settled(rpc!(caller.once: proxy.operator().retry_dead_letters(request))?)
}

/// A decision to leave it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SkipBody {
    /// Why it is left as it is.
    reason: String,
    /// Only show what would be done.
    #[serde(default)]
    dry_run: bool,
}

/// Leaves it as it is; then the walk goes on by itself.
#[utoipa::path(post, path = "/dead-letters/{id}/skip", tag = "operators", request_body = SkipBody,
    params(("id" = String, Path, format = Uuid, description = "The dead letter")),
    responses((status = 200, body = DeadLettersChanged), Errors))]
pub(super) async fn skip(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Named(dead_letter_id): Named,
    Told(body): Told<SkipBody>,
) -> Result<Body<DeadLettersChanged>, Refused> {
    let request = v1::SkipDeadLettersRequest {
        org_id: String::new(),
        filter: one(dead_letter_id),
        reason: body.reason,
        dry_run: body.dry_run,
    };
    settled(rpc!(caller.once: proxy.operator().skip_dead_letters(request))?)
}

/// What was done by hand.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SettleBody {
    /// What was done.
    note: String,
    /// Only show what would be done.
    #[serde(default)]
    dry_run: bool,
}

/// It was undone by hand; then the walk goes on by itself.
#[utoipa::path(post, path = "/dead-letters/{id}/resolve", tag = "operators",
    request_body = SettleBody,
    params(("id" = String, Path, format = Uuid, description = "The dead letter")),
    responses((status = 200, body = DeadLettersChanged), Errors))]
pub(super) async fn resolve(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    Named(dead_letter_id): Named,
    Told(body): Told<SettleBody>,
) -> Result<Body<DeadLettersChanged>, Refused> {
    let request = v1::ResolveDeadLettersRequest {
        org_id: String::new(),
        filter: one(dead_letter_id),
        note: body.note,
        dry_run: body.dry_run,
    };
    settled(rpc!(caller.once: proxy.operator().resolve_dead_letters(request))?)
}
