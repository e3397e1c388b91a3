//! Answers: JSON, and the documented body of errors.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use chrono::{SecondsFormat, Utc};
use http::{
    HeaderValue, StatusCode,
    header::{RETRY_AFTER, WWW_AUTHENTICATE},
};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::{
    IntoResponses, PartialSchema, ToSchema,
    openapi::{Content, Ref, RefOr, ResponseBuilder, ResponsesBuilder, response},
};

use crate::error::Refused;

/// The body of every error.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    /// The request's own id, from `X-Request-Id` or made here; logs name it.
    request_id: String,
    /// The stable reason.
    #[schema(example = "IN_PROGRESS")]
    code: String,
    /// What happened, for people.
    message: String,
    /// When, by the proxy's clock.
    #[schema(format = DateTime)]
    timestamp: String,
    /// Ids and names for programs; left out when there are none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(required = false)]
    details: BTreeMap<String, String>,
}

/// A refusal waits in its response until the outermost layer knows the request's id.
impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        let headers = response.headers_mut();
        if let Some(ms) = self.retry_after_ms {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds(ms)));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(Box::new(self));
        response
    }
}

/// Writes the body of a refusal.
pub(crate) fn finish(response: Response, request_id: &str) -> Response {
    let (mut parts, body) = response.into_parts();
    let Some(refused) = parts.extensions.remove::<Box<Refused>>() else {
        return Response::from_parts(parts, body);
    };
    let refused = *refused;
    let body = ErrorBody {
        request_id: request_id.to_owned(),
        code: refused.code.into_owned(),
        message: refused.message,
        timestamp: now(),
        details: refused.ids,
    };
    let status = parts.status;
    let mut response = (status, Json(body)).into_response();
    let own = std::mem::take(response.headers_mut());
    parts.headers.extend(own);
    *response.headers_mut() = parts.headers;
    response
}

/// Whole seconds for `Retry-After`, never zero.
pub(crate) fn seconds(ms: u64) -> u64 {
    ms.div_ceil(1_000).max(1)
}

#[expect(clippy::disallowed_methods, reason = "it is shown to people and decides nothing")]
fn now() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// The errors that every route may answer.
pub(crate) struct Errors;

const ERRORS: [(u16, &str); 12] = [
    (400, "The request is malformed"),
    (401, "The API key is missing or unknown"),
    (403, "The key may not do this, or belongs to another organisation"),
    (404, "There is no such thing for this key"),
    (408, "The body did not arrive in time"),
    (409, "The state does not allow it, or another call is in the way"),
    (413, "Larger than a limit allows"),
    (415, "The body is encoded"),
    (422, "Well-formed, but not what this call takes"),
    (429, "Faster than this key may ask"),
    (500, "A fault of the service"),
    (503, "The service cannot answer now; ask again"),
];

impl IntoResponses for Errors {
    fn responses() -> std::collections::BTreeMap<String, RefOr<response::Response>> {
        let schema = RefOr::Ref(Ref::from_schema_name(ErrorBody::name()));
        let mut responses = ResponsesBuilder::new();
        for (status, description) in ERRORS {
            let content = Content::builder().schema(Some(schema.clone())).build();
            let response = ResponseBuilder::new()
                .description(description)
                .content("application/json", content)
                .build();
            responses = responses.response(status.to_string(), response);
        }
        responses.build().responses
    }
}

/// The schema of errors, for the document's components.
pub(crate) fn error_schema() -> RefOr<utoipa::openapi::Schema> {
    ErrorBody::schema()
}
