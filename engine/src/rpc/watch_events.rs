//! WatchEvents: what happened, then what happens.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures::Stream;
use tokio::{sync::mpsc, time::Instant};
use tonic::Status;
use undolog_core::reason::{Reason, Refusal};
use undolog_listen::Place;
use undolog_proto::v1;
use undolog_store::{
    StepError, Store, guard,
    watch::{Watch, WatchRequest, WatchedEvent},
};

use super::shown;
use crate::{
    bell::Listener,
    call::{Call, Engine, take},
    convert::optional_uuid,
    status,
};

/// How often a follower looks when nothing in this process rang.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The shortest time between two looks of one follower, however often it is rung.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// How long the reading of a history waits for transactions that had begun before it.
const UNDECIDED_FOR: Duration = Duration::from_secs(10);
/// How often a follower that hears nothing asks whether something is held back from it.
const HELD_LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long events may be held back from a follower before it is told.
const HELD_FOR: Duration = Duration::from_secs(60);
/// Events on their way to one follower.
const BUFFERED: usize = 64;

/// The stream of one follower. It ends its reader when it is dropped.
#[derive(Debug)]
pub(crate) struct Events {
    events: mpsc::Receiver<Result<v1::Event, Status>>,
    engine: Arc<Engine>,
    /// Its reader read all that there was: the stream is whole.
    is_whole: Arc<AtomicBool>,
    has_ended: bool,
    _place: Place,
}

impl Stream for Events {
    type Item = Result<v1::Event, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let polled = self.events.poll_recv(cx);
        // A stream that an engine breaks off because it stops must not look as if it was whole.
        if matches!(polled, Poll::Ready(None)) {
            self.has_ended = true;
            if self.engine.stop.is_cancelled() && !self.is_whole.load(Ordering::Acquire) {
                return Poll::Ready(Some(Err(stopping())));
            }
        }
        polled
    }
}

fn stopping() -> Status {
    let why = "this engine stops; go on through another one, after the last event that came";
    status::of_refusal(&Refusal::because(Reason::Unavailable, why))
}

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::WatchEventsRequest>,
) -> Result<Events, Status> {
    let request = call.message;
    let wanted = WatchRequest {
        session_id: optional_uuid("session_id", &request.session_id)?,
        cursor: request.cursor,
        from_now: request.from_now,
    };
    let place = take(&engine.streams, call.who)?;
    let store = engine.store.clone();
    let opening = async move { Watch::open(&store, &call.caller, &wanted).await };
    let watch = engine.read(opening).await?;
    let (sender, events) = mpsc::channel(BUFFERED);
    let bell = engine.bells.listen(watch.session_id().unwrap_or(watch.org_id()));
    let is_whole = Arc::<AtomicBool>::default();
    let follower = Follower {
        engine: Arc::clone(engine),
        watch,
        sender,
        bell,
        is_whole: Arc::clone(&is_whole),
    };
    tokio::spawn(follower.read(request.follow));
    let engine = Arc::clone(engine);
    Ok(Events { events, engine, is_whole, has_ended: false, _place: place })
}

/// Reads on for one stream.
struct Follower {
    engine: Arc<Engine>,
    watch: Watch,
    sender: mpsc::Sender<Result<v1::Event, Status>>,
    bell: Listener,
    is_whole: Arc<AtomicBool>,
}

impl Follower {
    async fn read(self, follow: bool) {
        let Self { engine, mut watch, sender, bell, is_whole: read_all } = self;
        let mut held = Held::default();
        loop {
            // What rings from here on is not in what is read next, or is read twice as nothing.
            let rung = bell.rung();
            let is_whole = !follow && is_decided(&watch, &engine.store).await;
            let events = match next(&mut watch, &engine.store).await {
                Ok(events) => events,
                Err(status) => {
                    // The follower may be gone; then nobody is left to hear it.
                    let _ = sender.send(Err(status)).await;
                    return;
                }
            };
            let is_all = events.is_empty();
            for event in events {
                // A follower that reads no more waits here, without a connection, and not for an
                // engine that stops.
                let sent = tokio::select! {
                    sent = sender.send(Ok(shown::event(event))) => sent,
                    () = engine.stop.cancelled(), if guard!("watch.stop") => return,
                };
                if sent.is_err() {
                    return;
                }
            }
            if is_all && is_whole {
                read_all.store(true, Ordering::Release);
                return;
            }
            if is_all && let Some(status) = held.check(&watch, &engine.store, follow).await {
                // The follower may be gone; then nobody is left to hear it.
                let _ = sender.send(Err(status)).await;
                return;
            }
            if is_all {
                tokio::select! {
                    () = sender.closed() => return,
                    () = engine.stop.cancelled() => return,
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                    () = rung => tokio::time::sleep(LOOK_PAUSE).await,
                }
            }
        }
    }
}

/// What is held back from a follower, and since when. An organisation's events are shown once every
/// transaction that began before them has ended, anywhere in the database cluster: one that stays
/// open holds all later events back.
#[derive(Default)]
struct Held {
    began: Option<Instant>,
    looked: Option<Instant>,
    since: Option<Instant>,
}

impl Held {
    /// Looks from time to time; a status: the follower has to be told that it does not hear all.
    async fn check(&mut self, watch: &Watch, store: &Store, follow: bool) -> Option<Status> {
        let now = Instant::now();
        let began = *self.began.get_or_insert(now);
        if !follow {
            let waited = now.duration_since(began);
            return (waited > UNDECIDED_FOR).then(|| not_whole(waited));
        }
        if self.looked.is_some_and(|at| now.duration_since(at) < HELD_LOOK_EVERY) {
            return None;
        }
        self.looked = Some(now);
        // An error here shows itself at the reading that follows.
        let is_held = watch.is_held_back(store).await.unwrap_or(false);
        self.since = is_held.then(|| self.since.unwrap_or(now));
        let age = self.since.map_or(Duration::ZERO, |since| now.duration_since(since));
        metrics::gauge!("undolog_events_held_back_seconds").set(age.as_secs_f64());
        (age > HELD_FOR).then(|| not_whole(age))
    }
}

/// What a follower hears instead of an end that would look whole. It can go on after its last
/// event.
fn not_whole(age: Duration) -> Status {
    let seconds = age.as_secs();
    tracing::warn!(held_seconds = seconds, "a transaction that stays open holds events back");
    let message = format!(
        "these are not all events: for {seconds} s a transaction that is open in the database \
         cluster has held later ones back; go on after the last cursor"
    );
    status::of_refusal(
        &Refusal::because(Reason::Unavailable, message).with("held_seconds", seconds),
    )
}

/// An error here shows itself at the reading that follows.
async fn is_decided(watch: &Watch, store: &Store) -> bool {
    let Ok(_turn) = store.reading_turn().await else { return false };
    watch.is_decided(store).await.unwrap_or(false)
}

/// Reads in its turn, as every reader does: followers share what is there for reading.
async fn next(watch: &mut Watch, store: &Store) -> Result<Vec<WatchedEvent>, Status> {
    let turn = store.reading_turn().await.map_err(|error| status::of_error(&error))?;
    let read = store.note(watch.next(store).await);
    turn.end(!read.as_ref().is_err_and(StepError::is_unavailable));
    read.map_err(|error| status::of_error(&error))
}
