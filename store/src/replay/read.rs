//! Reading a replay: the snapshots, then what changed after them.

use std::collections::{HashSet, VecDeque};

use chrono::{DateTime, Duration, NaiveDate, Utc};
use sqlx::FromRow;
use undolog_core::{
    Tier,
    intercept::{Context, Decision, Found, decide},
    reason::Refusal,
    state::SessionState,
};
use uuid::Uuid;

use super::{CallRow, Replayed, format};
use crate::{
    effects::executed_between,
    error::StepError,
    pool::Store,
    read::{only_of, page::page_bytes},
    rollback, session,
    step::Caller,
    tenant::Tenant,
};

/// Calls without a result that are told at once: a few hundred bytes each.
const OPEN_MAX: usize = 2_000;
/// Rows that are asked for at once.
const ROWS_MAX: usize = 500;

/// A replay that is being read. Every part is read in a transaction of its own, so that a slow
/// client holds nothing.
#[derive(Debug)]
pub struct Replay {
    session: SessionRow,
    /// Snapshots that are still to be read.
    snapshots: VecDeque<SnapshotRow>,
    /// Effects that snapshots hold and that changed since.
    changed: HashSet<Uuid>,
    /// Effects whose results are still to be read from their rows.
    rows: VecDeque<Uuid>,
    /// Calls without a result that are not told yet.
    open: Vec<OpenCall>,
}

/// A call that has no result to be replayed and must not run as another one.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
#[expect(missing_docs, reason = "the fields are those of the wire's OpenCall")]
pub struct OpenCall {
    pub effect_id: Uuid,
    pub step_index: i32,
    pub step_key: Option<String>,
    pub tool_name: String,
    pub call_signature: String,
    pub state: String,
}

#[derive(Debug, Clone, FromRow)]
struct SessionRow {
    session_id: Uuid,
    org_id: Uuid,
    session_month: NaiveDate,
    started_at: DateTime<Utc>,
    /// Later than anything that was recorded when this was read, and soon after.
    executed_until: DateTime<Utc>,
    state: String,
    is_sealed: bool,
    late_rollback: bool,
    max_step: i32,
}

#[derive(Debug, FromRow)]
struct SnapshotRow {
    snapshot_id: Uuid,
    event_seq: i64,
    invalidated: Vec<Uuid>,
}

#[derive(Debug, FromRow)]
struct PageRow {
    n: i64,
    matched: i64,
    #[sqlx(flatten)]
    call: CallRow,
}

impl Replay {
    /// Begins a replay, where a call of the session would be answered with its stored result.
    ///
    /// # Errors
    /// There is no such session for this caller, or its state serves no stored results.
    pub async fn open(store: &Store, caller: &Caller, session_id: Uuid) -> Result<Self, StepError> {
        let mut tx = Tenant::begin(store, caller.org_id).await?;
        let row: Option<SessionRow> = sqlx::query_as(
            "SELECT session_id, org_id, session_month, started_at, state::text AS state, \
             sealed_at IS NOT NULL AS is_sealed, max_step, \
             greatest(clock_timestamp(), last_executed_at) + interval '1 hour' AS executed_until, \
             state = 'compensating' AND EXISTS (SELECT FROM undolog_rollbacks r \
               WHERE r.session_id = s.session_id AND r.org_id = s.org_id \
               AND r.kind = 'partial' AND r.cause = $4 \
               AND r.state IN ('draining', 'walking', 'halted')) AS late_rollback \
             FROM undolog_sessions s WHERE org_id = $1 AND session_id = $2 \
             AND ($3::text IS NULL OR principal = $3)",
        )
        .bind(caller.org_id)
        .bind(session_id)
        .bind(only_of(caller))
        .bind(rollback::LATE)
        .fetch_optional(tx.conn())
        .await?;
        let session = row.ok_or_else(|| session::not_found(session_id))?;
        session.check()?;
        let snapshots: Vec<SnapshotRow> =
            sqlx::query_as(include_str!("../../sql/snapshot_list.sql"))
                .bind(session_id)
                .bind(caller.org_id)
                .fetch_all(tx.conn())
                .await?;
        let seq = snapshots.last().map_or(0, |snapshot| snapshot.event_seq);
        let rows: Vec<Uuid> = sqlx::query_scalar(include_str!("../../sql/replay_changed.sql"))
            .bind(session.session_month)
            .bind(session_id)
            .bind(caller.org_id)
            .bind(seq)
            .fetch_all(tx.conn())
            .await?;
        let open: Vec<OpenCall> = sqlx::query_as(include_str!("../../sql/replay_open.sql"))
            .bind(caller.org_id)
            .bind(session_id)
            .bind(session.started_at)
            .bind(session.executed_until)
            .fetch_all(tx.conn())
            .await?;
        tx.commit().await?;
        let mut changed = HashSet::new();
        if !snapshots.is_empty() && crate::guard!("replay.invalidated") {
            changed.extend(&rows);
            changed.extend(snapshots.iter().flat_map(|snapshot| &snapshot.invalidated));
        }
        Ok(Self { session, snapshots: snapshots.into(), changed, rows: rows.into(), open })
    }

    /// The first step that nobody has used.
    #[must_use]
    pub fn next_step_index(&self) -> i32 {
        self.session.max_step.saturating_add(1)
    }

    /// The next calls without a result, some at a time; none: all were told.
    pub fn next_open(&mut self) -> Vec<OpenCall> {
        let some = self.open.len().min(OPEN_MAX);
        self.open.drain(..some).collect()
    }

    /// The next results; none: the replay is whole.
    ///
    /// # Errors
    /// The database could not be reached.
    pub async fn next(&mut self, store: &Store) -> Result<Vec<Replayed>, StepError> {
        while let Some(snapshot) = self.snapshots.pop_front() {
            let calls = self.of_snapshot(store, &snapshot).await?;
            if !calls.is_empty() {
                return Ok(calls);
            }
        }
        while !self.rows.is_empty() {
            let calls = self.of_rows(store).await?;
            if !calls.is_empty() {
                return Ok(calls);
            }
        }
        Ok(Vec::new())
    }

    async fn of_snapshot(
        &mut self,
        store: &Store,
        snapshot: &SnapshotRow,
    ) -> Result<Vec<Replayed>, StepError> {
        let mut tx = Tenant::begin(store, self.session.org_id).await?;
        let row: Option<(String, Vec<u8>, Vec<Uuid>)> = sqlx::query_as(
            "SELECT state_format, state_bytes, effect_ids FROM undolog_session_snapshots \
             WHERE snapshot_id = $1 AND org_id = $2",
        )
        .bind(snapshot.snapshot_id)
        .bind(self.session.org_id)
        .fetch_optional(tx.conn())
        .await?;
        tx.commit().await?;
        // A snapshot goes only together with its session.
        let (format, bytes, effect_ids) =
            row.ok_or_else(|| session::not_found(self.session.session_id))?;
        let Some(held) = format::decode(&format, &bytes) else {
            metrics::counter!("undolog_snapshots_unread_total").increment(1);
            let snapshot_id = snapshot.snapshot_id;
            tracing::warn!(%snapshot_id, "a snapshot cannot be read; its rows are");
            let ids = effect_ids.into_iter().filter(|id| !self.changed.contains(id));
            self.rows.extend(ids.collect::<Vec<_>>());
            return Ok(Vec::new());
        };
        let mut calls = Vec::with_capacity(held.len());
        for held in held {
            match held {
                Ok(call) if !self.changed.contains(&call.effect_id) => calls.push(call),
                Err(effect_id) if !self.changed.contains(&effect_id) => {
                    self.rows.push_back(effect_id);
                }
                _ => {}
            }
        }
        Ok(calls)
    }

    async fn of_rows(&mut self, store: &Store) -> Result<Vec<Replayed>, StepError> {
        let ids: Vec<Uuid> = self.rows.iter().take(ROWS_MAX).copied().collect();
        let times = || ids.iter().filter_map(|id| executed_between(*id));
        // A session's effects do not lie before it, whatever an id says.
        let from = times().map(|(from, _)| from).min().unwrap_or(self.session.started_at);
        let to = times().map(|(_, to)| to).max().unwrap_or(from + Duration::milliseconds(1));
        let mut tx = Tenant::begin(store, self.session.org_id).await?;
        let rows: Vec<PageRow> = sqlx::query_as(include_str!("../../sql/replay_effects.sql"))
            .bind(self.session.org_id)
            .bind(self.session.session_id)
            .bind(self.session.session_month)
            .bind(&ids)
            .bind(from)
            .bind(to)
            .bind(page_bytes())
            .fetch_all(tx.conn())
            .await?;
        tx.commit().await?;
        let is_cut = rows.first().is_some_and(|row| row.matched > rows.len() as i64);
        let read = match rows.last() {
            Some(last) if is_cut => usize::try_from(last.n).unwrap_or(ids.len()),
            _ => ids.len(),
        };
        self.rows.drain(..read);
        rows.into_iter().map(|row| row.call.replayed()).collect()
    }
}

impl SessionRow {
    /// Answers what Intercept would answer for a committed call of this session.
    fn check(&self) -> Result<(), StepError> {
        let state: SessionState =
            self.state.parse().map_err(|error| StepError::Corrupt(format!("session: {error}")))?;
        let context = Context {
            tier: Tier::Compensable,
            sealed: self.is_sealed,
            shared_steps: false,
            late_rollback: self.late_rollback,
        };
        match decide(Found::Committed, state, context) {
            Decision::Refuse(reason) => Err(Refusal::new(reason)
                .with("session_id", self.session_id)
                .with("session_state", &self.state)
                .into()),
            _ => Ok(()),
        }
    }
}
