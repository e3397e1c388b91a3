//! WatchApproval: a request as it stands, then each change, until none can come any more.
//!
//! A watcher holds no connection and no task: it waits in the hub and reads when it is woken.

use std::{pin::Pin, sync::Arc};

use futures::{Stream, stream};
use tonic::Status;
use undolog_core::reason::{Reason, Refusal};
use undolog_listen::Place;
use undolog_proto::v1;
use undolog_store::{
    Caller,
    read::{self, ApprovalMark, ApprovalView},
};
use uuid::Uuid;

use super::{super::fit::listed, shown};
use crate::{
    call::{Call, Engine, take},
    convert::uuid,
    hub::Until,
    status,
};

/// The stream of one watcher.
pub(crate) type Updates =
    Pin<Box<dyn Stream<Item = Result<v1::ApprovalUpdate, Status>> + Send + 'static>>;

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::WatchApprovalRequest>,
) -> Result<Updates, Status> {
    let approval_id = uuid("approval_id", &call.message.approval_id)?;
    let place = take(&engine.watchers, call.who)?;
    let watcher =
        Watcher { engine: Arc::clone(engine), caller: call.caller, approval_id, _place: place };
    // What is refused is refused before the stream begins.
    let first = watcher.read().await?;
    Ok(Box::pin(stream::try_unfold(Some((watcher, At::First(Box::new(first)))), next)))
}

fn stopping() -> Status {
    let why = "this engine stops; watch through another one";
    status::of_refusal(&Refusal::because(Reason::Unavailable, why))
}

/// One watcher and where its stream stands.
struct Watcher {
    engine: Arc<Engine>,
    caller: Caller,
    approval_id: Uuid,
    _place: Place,
}

enum At {
    /// This is what the watcher is told first.
    First(Box<ApprovalView>),
    /// This is what the watcher was told last.
    Told(ApprovalMark),
}

type State = Option<(Watcher, At)>;

async fn next(state: State) -> Result<Option<(v1::ApprovalUpdate, State)>, Status> {
    let Some((watcher, at)) = state else { return Ok(None) };
    let view = match at {
        At::First(view) => view,
        At::Told(mark) => Box::new(watcher.change(mark).await?),
    };
    let mark = view.mark();
    let update = v1::ApprovalUpdate {
        approval: Some(listed(shown::approval(*view))),
        is_final: mark.is_final(),
    };
    let state = (!mark.is_final()).then_some((watcher, At::Told(mark)));
    Ok(Some((update, state)))
}

impl Watcher {
    /// The next change. When the engine stops, the watcher is told to ask another one.
    async fn change(&self, told: ApprovalMark) -> Result<ApprovalView, Status> {
        let hub = &self.engine.hub;
        // The place is taken before the reading: a change in between wakes it.
        let waiting = hub.wait(self.caller.org_id, told.effect_id, Until::Moves(told));
        loop {
            tokio::select! {
                () = waiting.changed() => {}
                () = self.engine.stop.cancelled() => return Err(stopping()),
            }
            let view = self.read().await?;
            if view.mark() != told {
                return Ok(view);
            }
        }
    }

    async fn read(&self) -> Result<ApprovalView, Status> {
        let (store, caller) = (self.engine.store.clone(), self.caller.clone());
        let approval_id = self.approval_id;
        let reading = async move { read::show_approval(&store, &caller, approval_id).await };
        self.engine.read(reading).await
    }
}
