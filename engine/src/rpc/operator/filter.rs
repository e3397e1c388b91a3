//! Which dead letters a request is about, and what became of them.

use std::sync::Arc;

use tonic::Status;
use undolog_proto::v1;
use undolog_store::operate::{Change, Changed, DeadLetterFilter};
use uuid::Uuid;

use crate::{
    call::Engine,
    convert::{count, id, optional_uuid, time, timestamp, uuid},
};

pub(super) fn dead_letters(
    filter: Option<v1::DeadLetterFilter>,
) -> Result<DeadLetterFilter, Status> {
    let filter = filter.unwrap_or_default();
    let ids = filter.dead_letter_ids.iter().map(|id| uuid("dead_letter_ids", id));
    Ok(DeadLetterFilter {
        dead_letter_ids: ids.collect::<Result<_, _>>()?,
        session_id: optional_uuid("filter.session_id", &filter.session_id)?,
        tool_name: filter.tool_name,
        compensation_fn: filter.compensation_fn,
        reason: filter.reason,
        older_than_seconds: filter.older_than_seconds,
        created_until: filter
            .created_until
            .map(|at| time("filter.created_until", at))
            .transpose()?,
        all: filter.all,
    })
}

/// Tells the followers of what was changed, and answers it.
pub(super) fn changed(
    engine: &Arc<Engine>,
    org_id: Uuid,
    changed: Changed,
) -> v1::DeadLettersChanged {
    let sessions = changed.changes.iter().filter(|change| change.is_changed());
    let mut subjects: Vec<Uuid> = sessions.filter_map(|change| change.session_id).collect();
    subjects.dedup();
    subjects.push(org_id);
    engine.bells.ring(&subjects);
    v1::DeadLettersChanged {
        matched: count(changed.changes.len()),
        changed: count(changed.changed()),
        more: changed.more,
        as_of: Some(timestamp(changed.as_of)),
        changes: changed.changes.iter().map(change).collect(),
    }
}

fn change(change: &Change) -> v1::DeadLetterChange {
    v1::DeadLetterChange {
        dead_letter_id: change.dead_letter_id.to_string(),
        session_id: id(change.session_id),
        changed: change.is_changed(),
        why_not: change.why_not().map(|reason| reason.to_string()).unwrap_or_default(),
    }
}
