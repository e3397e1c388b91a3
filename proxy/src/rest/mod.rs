//! The REST face: the documented routes, each an RPC of the engine in HTTP's clothes.

mod answer;
mod approvals;
mod asked;
mod dead_letters;
mod effects;
mod events;
mod extract;
mod json;
mod layers;
mod probes;
mod queue;
mod registry;
mod replay;
mod rollback;
mod sessions;
mod shown;
mod tool_call;
mod values;

use std::sync::Arc;

use axum::{Router, middleware, routing::put};
use http::StatusCode;
use undolog_core::reason::Reason;
use utoipa::{OpenApi, openapi::OpenApi as Document};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{error::Refused, service::Proxy};

/// What the document says beside the routes.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "UndoLog",
        description = "Records an agent's tool calls before they run, and undoes them.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    security((), ("api_key" = []), ("bearer" = [])),
    modifiers(&Schemes)
)]
struct About;

struct Schemes;

impl utoipa::Modify for Schemes {
    fn modify(&self, document: &mut Document) {
        use utoipa::openapi::security::{
            ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme,
        };
        let components = document.components.get_or_insert_default();
        let key = SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("X-Api-Key")));
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        components.add_security_scheme("api_key", key);
        components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
        components.schemas.insert("ErrorBody".to_owned(), answer::error_schema());
    }
}

fn routes_and_document() -> (Router<Arc<Proxy>>, Document) {
    OpenApiRouter::with_openapi(About::openapi())
        .routes(routes!(tool_call::tool_call))
        .routes(routes!(effects::commit))
        .routes(routes!(effects::fail))
        .routes(routes!(effects::resolve))
        .routes(routes!(approvals::list))
        .routes(routes!(approvals::get))
        .routes(routes!(approvals::approve))
        .routes(routes!(approvals::reject))
        .routes(routes!(approvals::revoke))
        .routes(routes!(sessions::begin, sessions::list))
        .routes(routes!(sessions::get))
        .routes(routes!(sessions::effects))
        .routes(routes!(replay::replay))
        .routes(routes!(sessions::heartbeat))
        .routes(routes!(sessions::complete))
        .routes(routes!(sessions::fail))
        .routes(routes!(sessions::savepoint))
        .routes(routes!(rollback::rollback))
        .routes(routes!(dead_letters::list))
        .routes(routes!(dead_letters::get))
        .routes(routes!(dead_letters::retry))
        .routes(routes!(dead_letters::skip))
        .routes(routes!(dead_letters::resolve))
        .routes(routes!(queue::status))
        .routes(routes!(queue::pause))
        .routes(routes!(queue::resume))
        .routes(routes!(queue::close_breaker))
        .routes(routes!(registry::list_tools))
        .routes(routes!(registry::put_tool, registry::get_tool))
        .routes(routes!(registry::list_compensations))
        .routes(routes!(registry::put_compensation, registry::get_compensation))
        .routes(routes!(values::value))
        .routes(routes!(events::events))
        .routes(routes!(probes::health))
        .routes(routes!(probes::ready))
        .routes(routes!(probes::metrics))
        .split_for_parts()
}

/// The OpenAPI 3.1 document, generated from the handlers.
#[must_use]
pub fn openapi() -> String {
    let (_, document) = routes_and_document();
    document.to_pretty_json().unwrap_or_default()
}

/// Every route, with what stands before each of them.
pub(crate) fn router(proxy: Arc<Proxy>, cors: Option<tower_http::cors::CorsLayer>) -> Router {
    let (routes, document) = routes_and_document();
    let document = document.to_pretty_json().unwrap_or_default();
    let routes = routes
        .route("/openapi.json", probes::document(document))
        // A SAFE tool has no effect, so a client that reports on its empty id is told that all is
        // well.
        .route("/effects//commit", put(effects::nothing))
        .route("/effects//fail", put(effects::nothing))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(middleware::from_fn_with_state(Arc::clone(&proxy), layers::limits));
    let routes = match cors {
        Some(cors) => routes.layer(cors),
        None => routes,
    };
    routes
        .layer(middleware::from_fn(layers::identified))
        .layer(middleware::from_fn(undolog_listen::track))
        .with_state(proxy)
}

async fn no_route() -> Refused {
    Refused::malformed("there is no such route").with_status(StatusCode::NOT_FOUND)
}

async fn no_method() -> Refused {
    Refused::because(Reason::InvalidArgument, "this route does not take this method")
        .with_status(StatusCode::METHOD_NOT_ALLOWED)
}
