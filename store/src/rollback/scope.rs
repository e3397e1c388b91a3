//! Which rollback holds a position: positions decide, never times.

use undolog_core::commit::Scope;

use super::{COLUMNS, RollbackRow};
use crate::{error::StepError, session::LockedSession, tenant::Tenant};

/// The rollbacks that matter for a position of the stack.
#[derive(Debug, Default)]
pub(crate) struct Scoped {
    /// The session's live rollback, whatever its scope.
    pub(crate) live: Option<RollbackRow>,
    /// The ended rollback whose scope holds the position: the whole one, else the newest.
    ended: Option<RollbackRow>,
    position: Option<i32>,
}

impl Scoped {
    fn live_covers(&self) -> bool {
        let from = self.live.as_ref().map(|live| live.from_position);
        from.zip(self.position).is_some_and(|(from, position)| from <= position)
    }

    /// What the position is to the session's rollbacks.
    pub(crate) fn scope(&self) -> Scope {
        match &self.ended {
            _ if self.live_covers() => Scope::Live,
            Some(ended) if ended.is_whole() => Scope::EndedWhole,
            Some(_) => Scope::EndedPartial,
            None => Scope::Outside,
        }
    }

    /// The rollback that new work makes due: a live one covers what lies on top of the stack.
    pub(crate) fn due(&mut self) -> Option<&mut RollbackRow> {
        self.live.as_mut().or(self.ended.as_mut())
    }

    /// The rollback whose scope holds the position.
    pub(crate) fn covering(&mut self) -> Option<&mut RollbackRow> {
        if self.live_covers() { self.live.as_mut() } else { self.ended.as_mut() }
    }
}

/// Reads and locks the session's live rollback, and the ended one whose scope holds a position.
/// Without a position (the call was never granted): the live one alone.
pub(crate) async fn scoped(
    tx: &mut Tenant,
    session: &LockedSession,
    position: Option<i32>,
) -> Result<Scoped, StepError> {
    let org_id = tx.org_id();
    let rows: Vec<RollbackRow> = sqlx::query_as(&format!(
        "SELECT {COLUMNS} FROM undolog_rollbacks WHERE session_id = $1 AND org_id = $2 \
         AND (state IN ('draining', 'walking', 'halted') \
         OR (state = 'compensated' AND from_position <= $3 \
         AND COALESCE(until_position, $3) >= $3)) \
         ORDER BY (state <> 'compensated') DESC, (kind = 'whole') DESC, started_seq DESC, \
         created_at DESC LIMIT 2 \
         FOR NO KEY UPDATE"
    ))
    .bind(session.id())
    .bind(org_id)
    .bind(position)
    .fetch_all(tx.conn())
    .await?;
    let mut found = Scoped { position, ..Scoped::default() };
    for row in rows {
        let place = if row.state()?.is_live() { &mut found.live } else { &mut found.ended };
        if place.is_none() {
            *place = Some(row);
        }
    }
    Ok(found)
}
