//! Writes the snapshots of a session that are due.

use std::sync::Arc;

use undolog_store::replay::{WriteSnapshot, Written};
use uuid::Uuid;

use crate::handler::Shared;

/// Writes snapshot after snapshot until too little is left for one. A run that breaks off loses
/// nothing: the next fifty commits ask again.
pub(crate) async fn run(shared: &Arc<Shared>, org_id: Uuid, session_id: Uuid) {
    while !shared.stop.is_cancelled() {
        match shared.store.run(WriteSnapshot { org_id, session_id }).await {
            Ok(Written::Snapshot) => metrics::counter!("undolog_snapshots_total").increment(1),
            Ok(Written::NotDue) => return,
            Err(error) => {
                tracing::warn!(session.id = %session_id, %error, "a snapshot was not written");
                return;
            }
        }
    }
}
