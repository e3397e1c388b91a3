//! `GET /events`: what happened, then what happens, as server-sent events.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::State,
    response::{
        IntoResponse as _, Response,
        sse::{Event as Sent, KeepAlive, Sse},
    },
};
use futures::Stream;
use http::{HeaderMap, HeaderName};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use undolog_listen::Place;
use undolog_proto::v1;
use utoipa::IntoParams;

use super::{answer::Errors, extract::Asked, shown::Event};
use crate::{call::Caller, error::Refused, service::Proxy};

/// Events on their way to one client. One that does not read holds up nobody else.
const BUFFERED: usize = 256;
/// A client that has not read for so long is gone.
const UNREAD_FOR: Duration = Duration::from_secs(10);
/// A comment keeps the connection open when nothing happens.
const SILENCE: Duration = Duration::from_secs(15);
/// Where a client that comes back names the last event that it saw.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Which events.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    /// Of this session only; left out: of the organisation.
    #[serde(default)]
    session_id: String,
    /// Begin after this event's id; `Last-Event-ID` is stronger.
    #[serde(default)]
    cursor: String,
    /// Begin with what comes next.
    #[serde(default)]
    from_now: bool,
    /// End when the history is read; left out: go on.
    follow: Option<bool>,
}

/// Streams events. Each event's `id` is its cursor, so that a client that comes back misses none.
#[utoipa::path(get, path = "/events", tag = "events",
    params(Which,
        ("Last-Event-ID" = Option<String>, Header, description = "The last event that was seen")),
    responses((status = 200, body = Event, content_type = "text/event-stream"), Errors))]
pub(super) async fn events(
    State(proxy): State<Arc<Proxy>>,
    caller: Caller,
    headers: HeaderMap,
    Asked(which): Asked<Which>,
) -> Result<Response, Refused> {
    let place = proxy.streams.take(caller.who)?;
    let last = headers.get(LAST_EVENT_ID).map(|value| {
        let text = value.to_str().map_err(|_| Refused::malformed("Last-Event-ID is none of ours"));
        text.map(|text| text.trim().to_owned())
    });
    let last = last.transpose()?.filter(|last| !last.is_empty());
    let from_now = which.from_now && last.is_none();
    let request = v1::WatchEventsRequest {
        org_id: String::new(),
        session_id: which.session_id,
        cursor: last.unwrap_or(which.cursor),
        follow: which.follow.unwrap_or(true),
        from_now,
    };
    let mut sessions = proxy.channel.streams();
    let stream = sessions.watch_events(caller.stream(request)).await?.into_inner();
    let (sender, sent) = mpsc::channel(BUFFERED);
    tokio::spawn(pass_on(Arc::clone(&proxy), stream, sender, place));
    Ok(answer(ReceiverStream::new(sent)).into_response())
}

fn answer<S>(sent: S) -> Sse<axum::response::sse::KeepAliveStream<S>>
where
    S: Stream<Item = Result<Sent, Infallible>> + Send + 'static,
{
    Sse::new(sent).keep_alive(KeepAlive::new().interval(SILENCE))
}

/// Passes events on until either side ends, the client stops reading, or the proxy stops.
async fn pass_on(
    proxy: Arc<Proxy>,
    mut events: Streaming<v1::Event>,
    sender: mpsc::Sender<Result<Sent, Infallible>>,
    _place: Place,
) {
    loop {
        let next = tokio::select! {
            () = proxy.stop.cancelled() => return,
            () = sender.closed() => return,
            next = events.message() => next,
        };
        let event = match next {
            Ok(Some(event)) => event,
            Ok(None) => return,
            Err(status) => {
                // The client comes back with the last id that it saw.
                tracing::debug!(error = %status, "a stream of events broke off");
                return;
            }
        };
        let Some(sent) = shown(event) else { continue };
        if sender.send_timeout(Ok(sent), UNREAD_FOR).await.is_err() {
            return;
        }
    }
}

fn shown(event: v1::Event) -> Option<Sent> {
    let event = Event::from(event);
    let data = serde_json::to_string(&event)
        .inspect_err(|error| tracing::error!(%error, "an event cannot be shown"))
        .ok()?;
    Some(Sent::default().id(event.cursor).event(event.kind).data(data))
}
