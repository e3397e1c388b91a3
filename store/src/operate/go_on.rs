//! How a rollback goes on when something that stood in its way is settled.

use serde_json::json;
use undolog_core::state::{RollbackEvent, RollbackState, SessionEvent, SessionState};

use crate::{
    error::StepError,
    rollback::{self, RollbackRow},
    session::LockedSession,
    tenant::Tenant,
};

/// Something that stood in the way is settled: a rollback that was halted by it goes on, or ends
/// here and now when nothing is left to do.
pub(super) async fn without_obstacle(
    tx: &mut Tenant,
    session: &mut LockedSession,
    actor: &str,
) -> Result<(), StepError> {
    let Some(mut live) = rollback::live(tx, session).await? else { return Ok(()) };
    if live.state()? != RollbackState::Halted {
        // It may have waited for exactly this.
        return rollback::make_due(tx, session, &mut live, actor).await;
    }
    if session.state() != SessionState::Halted {
        return Ok(());
    }
    let ahead = ahead(tx, session, &live).await?;
    if ahead.has_open {
        let stops = ahead.is_blocked && session.row.on_dead_letter != "continue";
        return match stops {
            // Another dead letter above it still stops the walk.
            true => Ok(()),
            false => rollback::make_due(tx, session, &mut live, actor).await,
        };
    }
    if rollback::obstacles(tx, session, &live).await? > 0 {
        return Ok(());
    }
    live.apply(session, RollbackEvent::Reopened, actor, json!({}))?;
    session.apply(SessionEvent::Reopened, actor, json!({}))?;
    rollback::finish(tx, session, &mut live, actor).await
}

#[derive(Debug, sqlx::FromRow)]
struct Ahead {
    has_open: bool,
    is_blocked: bool,
}

async fn ahead(
    tx: &mut Tenant,
    session: &LockedSession,
    rollback: &RollbackRow,
) -> Result<Ahead, StepError> {
    let org_id = tx.org_id();
    Ok(sqlx::query_as(include_str!("../../sql/operate_ahead.sql"))
        .bind(session.id())
        .bind(org_id)
        .bind(rollback.from_position)
        .fetch_one(tx.conn())
        .await?)
}
