//! `UndoLogProxy`: what proxies need beside the calls that they pass on.

mod authenticate;
mod list_approved;
mod tick;

use std::sync::Arc;

use tonic::{Request, Response, Status};
use undolog_proto::v1::{
    self,
    undo_log_proxy_server::{UndoLogProxy, UndoLogProxyServer},
};

use super::verbs;
use crate::call::Engine;

/// What proxies need.
pub(crate) fn proxy_service(engine: Arc<Engine>) -> UndoLogProxyServer<Proxies> {
    UndoLogProxyServer::new(Proxies(engine))
}

/// `UndoLogProxy`.
#[derive(Debug)]
pub(crate) struct Proxies(Arc<Engine>);

verbs! {
    UndoLogProxy for Proxies {
        tick(TickRequest) -> TickResponse,
        list_approved(ListApprovedRequest) -> ListApprovedResponse,
    }

    async fn authenticate(
        &self,
        request: Request<v1::AuthenticateRequest>,
    ) -> Result<Response<v1::AuthenticateResponse>, Status> {
        authenticate::run(&request).map(Response::new)
    }
}
