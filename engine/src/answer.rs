//! What holds for an answer until its last byte: its place, and that its caller's key is valid.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use tonic::{Status, body::Body};
use undolog_core::reason::Reason;
use undolog_listen::Place;
use undolog_store::{
    auth::{Authenticator, RECHECK_EVERY},
    owner::KeyHash,
};

use crate::status;

/// Ends when a key is valid no longer.
pub(crate) type Revoked = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Waits until a key is valid no longer. While the journal does not answer nobody knows, and
/// nothing that it would tell can be told either.
pub(crate) fn revoked(authenticator: Authenticator, hash: Option<KeyHash>) -> Revoked {
    let Some(hash) = hash else { return Box::pin(std::future::pending()) };
    Box::pin(async move {
        loop {
            tokio::time::sleep(RECHECK_EVERY).await;
            if matches!(authenticator.is_valid(hash).await, Ok(false)) {
                return;
            }
        }
    })
}

/// The body of an answer that may take long.
pub(crate) struct Answer {
    pub(crate) body: Body,
    pub(crate) revoked: Option<Revoked>,
    pub(crate) _place: Option<Place>,
    pub(crate) has_ended: bool,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        if let Some(revoked) = &mut self.revoked
            && revoked.as_mut().poll(cx).is_ready()
        {
            self.has_ended = true;
            let mut trailers = HeaderMap::new();
            status::of_reason(Reason::Unauthenticated).add_header(&mut trailers)?;
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended || self.body.is_end_stream()
    }
}
