//! GetValue: one field of a row, in parts, however large.

use std::sync::Arc;

use tonic::Status;
use undolog_core::limits::VALUE_PART_BYTES_MAX;
use undolog_proto::v1;
use undolog_store::{Caller, StepError, Store, read};
use uuid::Uuid;

use super::{fit::Row, operator::shown as decided, shown};
use crate::{
    call::{Call, Engine},
    convert::{invalid, uuid},
};

/// What has fields to be read.
#[derive(Debug, Clone, Copy)]
enum Of {
    Effect,
    UndoEntry,
    NextCall,
    DeadLetter,
    Approval,
    ApprovalEvent,
}

const NAMES: [(&str, Of); 6] = [
    ("effect", Of::Effect),
    ("undo_entry", Of::UndoEntry),
    ("next_call", Of::NextCall),
    ("dead_letter", Of::DeadLetter),
    ("approval", Of::Approval),
    ("approval_event", Of::ApprovalEvent),
];

pub(super) async fn run(
    engine: &Arc<Engine>,
    call: Call<v1::GetValueRequest>,
) -> Result<v1::GetValueResponse, Status> {
    let request = call.message;
    let id = uuid("id", &request.id)?;
    let named = NAMES.iter().find(|(name, _)| *name == request.of);
    let &(_, of) = named.ok_or_else(|| {
        let names: Vec<_> = NAMES.iter().map(|(name, _)| *name).collect();
        invalid(format!("of is none of {}", names.join(", ")))
    })?;
    let (store, caller, field) = (engine.store.clone(), call.caller, request.field);
    let reading = async move { read(&store, &caller, of, id, &field).await };
    let value = engine.read(reading).await?.map_err(invalid)?;
    let offset = usize::try_from(request.offset).unwrap_or(usize::MAX);
    let rest = value.get(offset..).ok_or_else(|| {
        invalid(format!("the value has {} bytes, fewer than the offset", value.len()))
    })?;
    Ok(v1::GetValueResponse {
        part: rest.get(..VALUE_PART_BYTES_MAX).unwrap_or(rest).to_vec(),
        total_bytes: value.len() as u64,
        digest: blake3::hash(&value).to_hex().to_string(),
    })
}

/// The value of a field, or why there is no such field.
async fn read(
    store: &Store,
    caller: &Caller,
    of: Of,
    id: Uuid,
    field: &str,
) -> Result<Result<Vec<u8>, String>, StepError> {
    Ok(match of {
        Of::Effect => take(shown::effect(read::one_effect(store, caller, id).await?), field),
        Of::UndoEntry => {
            take(shown::undo_entry(read::one_undo_entry(store, caller, id).await?), field)
        }
        Of::NextCall => {
            let call = read::next_call(store, caller, id).await?;
            let shown = call.map(|call| v1::PlannedUndo {
                url: call.url,
                body: call.body,
                note: call.note,
                ..v1::PlannedUndo::default()
            });
            take(shown.unwrap_or_default(), field)
        }
        Of::DeadLetter => {
            take(shown::dead_letter(read::one_dead_letter(store, caller, id).await?), field)
        }
        Of::Approval => {
            take(decided::approval(read::show_approval(store, caller, id).await?), field)
        }
        Of::ApprovalEvent => {
            take(decided::approval_event(read::one_approval_event(store, caller, id).await?), field)
        }
    })
}

fn take<R: Row>(mut row: R, field: &str) -> Result<Vec<u8>, String> {
    let (fields, _) = row.fields();
    let names: Vec<_> = fields.iter().map(super::fit::Field::name).collect();
    let found = fields.into_iter().find(|one| one.name() == field);
    found
        .map(super::fit::Field::take)
        .ok_or_else(|| format!("field is none of {}", names.join(", ")))
}
