//! GetReplay: all stored results of a session in one answer.

use std::{pin::Pin, sync::Arc};

use futures::{Stream, stream};
use tonic::Status;
use undolog_listen::Place;
use undolog_proto::v1;
use undolog_store::replay::{OpenCall, Replay, Replayed};

use crate::{
    call::{Call, Engine, take},
    convert::{count, uuid},
};

/// The stream of one client, which reads on only as fast as the client does.
pub(crate) type Parts =
    Pin<Box<dyn Stream<Item = Result<v1::ReplayPart, Status>> + Send + 'static>>;

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::GetReplayRequest>,
) -> Result<Parts, Status> {
    let session_id = uuid("session_id", &call.message.session_id)?;
    let place = take(&engine.replays, call.who)?;
    let store = engine.store.clone();
    // What is refused is refused before the stream begins.
    let opening = async move { Replay::open(&store, &call.caller, session_id).await };
    let replay = engine.read(opening).await?;
    let reader = Reader { engine: Arc::clone(engine), replay, is_first: true, _place: place };
    Ok(Box::pin(stream::try_unfold(reader, next)))
}

/// One client's replay and where it stands.
struct Reader {
    engine: Arc<Engine>,
    replay: Replay,
    is_first: bool,
    _place: Place,
}

async fn next(reader: Reader) -> Result<Option<(v1::ReplayPart, Reader)>, Status> {
    let Reader { engine, mut replay, is_first, _place } = reader;
    let open = replay.next_open();
    if is_first || !open.is_empty() {
        let part = v1::ReplayPart {
            open: open.into_iter().map(open_call).collect(),
            next_step_index: count(replay.next_step_index()),
            ..v1::ReplayPart::default()
        };
        return Ok(Some((part, Reader { engine, replay, is_first: false, _place })));
    }
    let store = engine.store.clone();
    let reading = async move {
        let calls = replay.next(&store).await?;
        Ok((calls, replay))
    };
    let (calls, replay) = engine.read(reading).await?;
    if calls.is_empty() {
        return Ok(None);
    }
    let calls = calls.into_iter().map(shown).collect();
    let part = v1::ReplayPart { calls, ..v1::ReplayPart::default() };
    Ok(Some((part, Reader { engine, replay, is_first, _place })))
}

fn open_call(call: OpenCall) -> v1::OpenCall {
    v1::OpenCall {
        effect_id: call.effect_id.to_string(),
        step_index: count(call.step_index),
        step_key: call.step_key.unwrap_or_default(),
        tool_name: call.tool_name,
        call_signature: call.call_signature,
        state: call.state,
    }
}

fn shown(call: Replayed) -> v1::ReplayedCall {
    v1::ReplayedCall {
        effect_id: call.effect_id.to_string(),
        attempt: count(call.attempt),
        step_index: count(call.step_index),
        step_key: call.step_key.unwrap_or_default(),
        tool_name: call.tool_name,
        tool_version: call.tool_version,
        call_signature: call.call_signature,
        position: count(call.position),
        result: Some(v1::ToolResult {
            success: true,
            output: call.output,
            error: String::new(),
            duration_ms: call.duration_ms,
        }),
    }
}
