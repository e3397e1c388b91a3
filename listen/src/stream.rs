//! One connection, which ends when its client is silent or does not read.

use std::{
    future::Future as _,
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep, sleep_until},
};
use tonic::transport::server::{Connected, TcpConnectInfo};

use crate::connections::Connection;

/// A new connection sends its first bytes within this time.
const FIRST_BYTES: Duration = Duration::from_secs(15);
/// A request's head arrives within this time of its first byte.
const HEAD: Duration = Duration::from_secs(10);
/// How long a connection is kept between two requests: longer than the load balancers that keep
/// theirs for a minute.
const IDLE: Duration = Duration::from_secs(75);
/// A client that has taken nothing for so long while there is something to send does not read.
const UNREAD: Duration = Duration::from_secs(30);

/// Whether requests of a connection are worked on.
#[derive(Debug, Default)]
pub struct Activity {
    requests: AtomicUsize,
    /// Counts the times when the last one ended.
    ended: AtomicU64,
}

impl Activity {
    /// A request has arrived; it has ended when what is returned is dropped.
    #[must_use]
    pub fn begin(self: &Arc<Self>) -> Active {
        self.requests.fetch_add(1, Ordering::AcqRel);
        Active(Arc::clone(self))
    }

    fn is_busy(&self) -> bool {
        self.requests.load(Ordering::Acquire) > 0
    }
}

/// A request that is worked on.
#[derive(Debug)]
pub struct Active(Arc<Activity>);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::AcqRel);
        self.0.requests.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What is waited for from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    /// The first byte of a request.
    Request,
    /// The rest of its head.
    Head,
    /// Nothing in particular: a request is worked on, or the protocol looks after itself.
    Nothing,
}

/// A connection with deadlines.
#[derive(Debug)]
pub struct Stream {
    io: TcpStream,
    /// `None`: HTTP/2, which asks silent clients whether they still live.
    activity: Option<Arc<Activity>>,
    awaited: Awaited,
    ended_seen: u64,
    read_by: Pin<Box<Sleep>>,
    unread: Option<Pin<Box<Sleep>>>,
    _place: Connection,
}

impl Stream {
    pub(crate) fn new(io: TcpStream, is_http1: bool, place: Connection) -> Self {
        Self {
            io,
            activity: is_http1.then(Arc::default),
            awaited: Awaited::Request,
            ended_seen: 0,
            read_by: Box::pin(sleep_until(Instant::now() + FIRST_BYTES)),
            unread: None,
            _place: place,
        }
    }

    /// Where requests of this connection are counted.
    pub(crate) fn activity(&self) -> Option<Arc<Activity>> {
        self.activity.clone()
    }

    fn wait_for(&mut self, awaited: Awaited, time: Duration) {
        self.awaited = awaited;
        self.read_by.as_mut().reset(Instant::now() + time);
    }

    /// Looks at what the requests of this connection have done meanwhile.
    fn look(&mut self) {
        let Some(activity) = &self.activity else { return };
        if activity.is_busy() {
            self.awaited = Awaited::Nothing;
            return;
        }
        let ended = activity.ended.load(Ordering::Acquire);
        if ended != self.ended_seen {
            self.ended_seen = ended;
            self.wait_for(Awaited::Request, IDLE);
        }
    }

    fn has_read(&mut self) {
        if self.activity.is_none() {
            self.awaited = Awaited::Nothing;
        } else if self.awaited == Awaited::Request {
            self.wait_for(Awaited::Head, HEAD);
        }
    }

    /// What writing made of it: a client that reads nothing for a while is cut off.
    fn wrote<T>(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.unread = None;
            return polled;
        }
        let until = || Box::pin(sleep_until(Instant::now() + UNREAD));
        ready!(self.unread.get_or_insert_with(until).as_mut().poll(cx));
        closed("unread")
    }
}

fn closed<T>(why: &'static str) -> Poll<io::Result<T>> {
    metrics::counter!("undolog_connections_timed_out_total", "why" => why).increment(1);
    Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)))
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.look();
        let before = buf.filled().len();
        let polled = Pin::new(&mut this.io).poll_read(cx, buf);
        if polled.is_ready() {
            if buf.filled().len() > before {
                this.has_read();
            }
            return polled;
        }
        if this.awaited == Awaited::Nothing {
            return Poll::Pending;
        }
        ready!(this.read_by.as_mut().poll(cx));
        closed("silent")
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.wrote(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write_vectored(cx, parts);
        self.wrote(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl Connected for Stream {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.io.connect_info()
    }
}
