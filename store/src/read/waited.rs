//! What waiting calls look at: whether their effect moved, for many of them in one query.

use sqlx::FromRow;
use uuid::Uuid;

use crate::{effects::executed_between, error::StepError, pool::Store, tenant::Tenant};

/// Where an effect stands; another value means that it moved.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct Waited {
    /// The effect.
    pub effect_id: Uuid,
    /// Its state.
    pub state: String,
    /// Its newest attempt.
    pub attempt: i32,
    /// A grant is out.
    pub is_granted: bool,
}

/// Where these effects of one organisation stand. Ids that are none of ours are left out.
pub async fn waited(
    store: &Store,
    org_id: Uuid,
    effect_ids: &[Uuid],
) -> Result<Vec<Waited>, StepError> {
    let spans = effect_ids.iter().filter_map(|id| executed_between(*id));
    let bounds = spans.reduce(|(from, to), (first, last)| (from.min(first), to.max(last)));
    let Some((from, to)) = bounds else { return Ok(Vec::new()) };
    let mut tx = Tenant::begin(store, org_id).await?;
    let rows = sqlx::query_as(
        "SELECT effect_id, state::text AS state, attempt, lease_ms IS NOT NULL AS is_granted \
         FROM undolog_effect_log WHERE org_id = $1 AND effect_id = ANY($2) \
           AND executed_at >= $3 AND executed_at < $4",
    )
    .bind(org_id)
    .bind(effect_ids)
    .bind(from)
    .bind(to)
    .fetch_all(tx.conn())
    .await?;
    tx.commit().await?;
    Ok(rows)
}
