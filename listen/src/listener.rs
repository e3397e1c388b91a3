//! Accepting connections, as many as there may be.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    extract::{ConnectInfo, Request, connect_info},
    middleware::Next,
    response::Response,
    serve::IncomingStream,
};
use futures::Stream as FuturesStream;
use tokio::net::TcpListener;

use crate::{
    connections::Connections,
    held::hold,
    stream::{Activity, Stream},
};

/// The pause after the system had no room for another connection.
const NO_ROOM_PAUSE: Duration = Duration::from_millis(250);

/// A listener with a bounded number of connections.
#[derive(Debug)]
pub struct Bounded {
    listener: TcpListener,
    connections: Arc<Connections>,
    is_http1: bool,
}

impl Bounded {
    /// For HTTP/1.1: a client that sends no whole request is cut off. The router needs [`track`].
    #[must_use]
    pub fn http1(listener: TcpListener) -> Self {
        Self { listener, connections: Arc::default(), is_http1: true }
    }

    /// For HTTP/2, whose server asks silent clients whether they still live.
    #[must_use]
    pub fn http2(listener: TcpListener) -> Self {
        Self { listener, connections: Arc::default(), is_http1: false }
    }

    /// Its connections, one after the other, without an end.
    pub fn incoming(self) -> impl FuturesStream<Item = io::Result<Stream>> + Send + 'static {
        futures::stream::unfold(self, |mut listener| async move {
            let (stream, _) = listener.next().await;
            Some((Ok(stream), listener))
        })
    }

    async fn next(&mut self) -> (Stream, SocketAddr) {
        loop {
            let (stream, address) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    // The client may be gone again; else the process has no descriptor left.
                    tracing::debug!(%error, "a connection was not accepted");
                    tokio::time::sleep(NO_ROOM_PAUSE).await;
                    continue;
                }
            };
            let Some(place) = self.connections.take(address.ip()) else {
                metrics::counter!("undolog_connections_refused_total").increment(1);
                continue;
            };
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "a connection ended before it was used");
                continue;
            }
            return (Stream::new(stream, self.is_http1, place), address);
        }
    }
}

impl axum::serve::Listener for Bounded {
    type Io = Stream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Stream, SocketAddr) {
        self.next().await
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// The other end of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    activity: Option<Arc<Activity>>,
}

impl connect_info::Connected<IncomingStream<'_, Bounded>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Bounded>) -> Self {
        Self { address: *stream.remote_addr(), activity: stream.io().activity() }
    }
}

/// The outermost layer of a router behind [`Bounded::http1`]: says from when until when a request
/// is worked on. While it is, its handler looks after the client.
pub async fn track(request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<ConnectInfo<Peer>>();
    let activity = peer.and_then(|ConnectInfo(peer)| peer.activity.clone());
    let active = activity.map(|activity| activity.begin());
    hold(next.run(request).await, active)
}
