//! The rows of a session, read with SQL of the driver's own.

use std::collections::HashMap;

use sqlx::PgPool;
use uuid::Uuid;

use crate::model::{
    EffectRow, EffectState, EntryRow, EntryState, LetterRow, Observed, Position, RollbackKind,
    RollbackRow, RollbackState, SentRow, SessionState, Tier,
};

/// Numbers for ids, in the order in which they were first seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ids(HashMap<Uuid, u64>);

impl Ids {
    pub(crate) fn number(&mut self, id: Uuid) -> u64 {
        let next = self.0.len() as u64 + 1;
        *self.0.entry(id).or_insert(next)
    }

    pub(crate) fn id(&self, number: u64) -> Option<Uuid> {
        self.0.iter().find(|(_, n)| **n == number).map(|(id, _)| *id)
    }
}

/// A compensation call that was made.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) undo_id: Uuid,
    pub(crate) step: u64,
    pub(crate) applied: bool,
}

/// What the driver keeps of one reading.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    pub(crate) observed: Observed,
    /// By call: the effect and its approval request.
    pub(crate) effects: HashMap<u32, (Uuid, Option<Uuid>)>,
    pub(crate) live_rollback: Option<Uuid>,
}

impl Rows {
    pub(crate) async fn read(pool: &PgPool, session: Uuid, ids: &mut Ids, sent: &[Sent]) -> Rows {
        let mut rows = Rows::default();
        head(pool, session, &mut rows.observed).await;
        effects(pool, session, &mut rows).await;
        results(pool, session, &mut rows).await;
        let calls: HashMap<Uuid, u32> = rows.effects.iter().map(|(call, e)| (e.0, *call)).collect();
        entries(pool, session, ids, &calls, &mut rows.observed).await;
        rollbacks(pool, session, ids, &mut rows).await;
        letters(pool, session, ids, &calls, &mut rows.observed).await;
        let mut tries: HashMap<u64, u32> = HashMap::new();
        for one in sent {
            let undo_id = ids.number(one.undo_id);
            let attempt = tries.entry(undo_id).or_default();
            *attempt += 1;
            let entry = rows.observed.entry(undo_id);
            let (call, position) = entry.map_or((0, 0), |entry| (entry.call, entry.position));
            let Sent { step, applied, .. } = *one;
            let row = SentRow { undo_id, call, attempt: *attempt, position, step, applied };
            rows.observed.sent.push(row);
        }
        rows
    }
}

async fn head(pool: &PgPool, session: Uuid, observed: &mut Observed) {
    let row: Option<(String, bool, i32, i32, i32)> = sqlx::query_as(
        "SELECT state::text, settled_at IS NOT NULL, last_position, residue_count, \
         unverified_count FROM undolog_sessions WHERE session_id = $1",
    )
    .bind(session)
    .fetch_optional(pool)
    .await
    .expect("the session");
    let Some((state, settled, last_position, residue, unverified)) = row else { return };
    observed.session = match state.as_str() {
        "active" => SessionState::Active,
        "awaiting_approval" => SessionState::AwaitingApproval,
        "completed" => SessionState::Completed,
        "failed" => SessionState::Failed,
        "compensating" => SessionState::Compensating,
        "compensated" => SessionState::Compensated,
        "halted" => SessionState::Halted,
        other => panic!("session state {other}"),
    };
    observed.settled = settled;
    observed.last_position = last_position.into();
    observed.residue = u64::try_from(residue).expect("a count");
    observed.unverified = u64::try_from(unverified).expect("a count");
}

#[derive(sqlx::FromRow)]
struct Effect {
    call: i32,
    effect_id: Uuid,
    approval_request_id: Option<Uuid>,
    state: String,
    outcome: Option<String>,
    tier: String,
    position: Option<i32>,
    asked_position: Option<i32>,
    attempt: i32,
    value: Option<i64>,
    leased: bool,
}

async fn effects(pool: &PgPool, session: Uuid, rows: &mut Rows) {
    let effects: Vec<Effect> = sqlx::query_as(
        "SELECT (args_snapshot ->> 'call')::int AS call, effect_id, approval_request_id, \
         state::text, outcome, tier::text, position, asked_position, attempt, \
         (result_snapshot ->> 'value')::bigint AS value, lease_ms IS NOT NULL AS leased \
         FROM undolog_effect_log WHERE session_id = $1 ORDER BY 1",
    )
    .bind(session)
    .fetch_all(pool)
    .await
    .expect("the effects");
    for row in effects {
        let call = u32::try_from(row.call).expect("a call");
        let live_grant = row.state == "executing" || (row.state == "approved" && row.leased);
        rows.observed.effects.push(EffectRow {
            call,
            state: effect_state(&row),
            tier: if row.tier == "irreversible" { Tier::Irreversible } else { Tier::Compensable },
            position: row.position.map(Position::from),
            asked_position: row.asked_position.map(Position::from),
            attempt: u32::try_from(row.attempt).expect("an attempt"),
            results: row.value.map(|value| (attempt_of(value), value)).into_iter().collect(),
            live_grant,
        });
        rows.effects.insert(call, (row.effect_id, row.approval_request_id));
    }
}

/// Values say which attempt they belong to, so that a result that became the call's own although
/// another attempt produced it is counted once.
fn attempt_of(value: i64) -> u32 {
    u32::try_from(value / 10 % 100).expect("a value of the driver")
}

fn effect_state(row: &Effect) -> EffectState {
    match row.state.as_str() {
        "pending" => EffectState::Pending,
        "approved" => EffectState::Approved,
        "rejected" => EffectState::Rejected,
        "executing" => EffectState::Executing,
        "committed" => EffectState::Committed,
        "failed" if row.outcome.as_deref() == Some("not_applied") => EffectState::FailedNotApplied,
        "failed" => EffectState::FailedMaybeApplied,
        "unknown" => EffectState::Unknown,
        "compensating" => EffectState::Compensating,
        "compensated" => EffectState::Compensated,
        "compensation_failed" => EffectState::CompensationFailed,
        other => panic!("effect state {other}"),
    }
}

/// The results of earlier attempts.
async fn results(pool: &PgPool, session: Uuid, rows: &mut Rows) {
    let results: Vec<(Uuid, i32, i64)> = sqlx::query_as(
        "SELECT effect_id, attempt, (result_snapshot ->> 'value')::bigint \
         FROM undolog_effect_attempts \
         WHERE session_id = $1 AND result_snapshot IS NOT NULL ORDER BY 1, 2",
    )
    .bind(session)
    .fetch_all(pool)
    .await
    .expect("the attempts");
    for (effect_id, attempt, value) in results {
        let call = rows.effects.iter().find(|(_, e)| e.0 == effect_id).map(|(call, _)| *call);
        let effect = rows.observed.effects.iter_mut().find(|e| Some(e.call) == call);
        let result = (u32::try_from(attempt).expect("an attempt"), value);
        if let Some(effect) = effect.filter(|effect| !effect.results.contains(&result)) {
            effect.results.push(result);
        }
    }
}

async fn entries(
    pool: &PgPool,
    session: Uuid,
    ids: &mut Ids,
    calls: &HashMap<Uuid, u32>,
    observed: &mut Observed,
) {
    let entries: Vec<(Uuid, Uuid, i32, i32, String, Option<String>)> = sqlx::query_as(
        "SELECT undo_id, effect_id, attempt, stack_position, state, skip_reason \
         FROM undolog_undo_stack WHERE session_id = $1 ORDER BY stack_position",
    )
    .bind(session)
    .fetch_all(pool)
    .await
    .expect("the entries");
    for (undo_id, effect_id, attempt, position, state, skip_reason) in entries {
        observed.entries.push(EntryRow {
            undo_id: ids.number(undo_id),
            call: calls[&effect_id],
            attempt: u32::try_from(attempt).expect("an attempt"),
            position: position.into(),
            state: match state.as_str() {
                "pending" => EntryState::Pending,
                "running" => EntryState::Running,
                "compensated" => EntryState::Compensated,
                "failed" => EntryState::Failed,
                "skipped" => EntryState::Skipped,
                other => panic!("entry state {other}"),
            },
            skip_reason,
        });
    }
}

async fn rollbacks(pool: &PgPool, session: Uuid, ids: &mut Ids, rows: &mut Rows) {
    let rollbacks: Vec<(Uuid, String, String, i32, Option<i32>)> = sqlx::query_as(
        "SELECT rollback_id, kind, state, from_position, until_position \
         FROM undolog_rollbacks WHERE session_id = $1 ORDER BY started_seq",
    )
    .bind(session)
    .fetch_all(pool)
    .await
    .expect("the rollbacks");
    for (rollback_id, kind, state, from, until) in rollbacks {
        let state = match state.as_str() {
            "draining" => RollbackState::Draining,
            "walking" => RollbackState::Walking,
            "halted" => RollbackState::Halted,
            _ => RollbackState::Ended,
        };
        let live = state != RollbackState::Ended;
        if live {
            rows.live_rollback = Some(rollback_id);
        }
        rows.observed.rollbacks.push(RollbackRow {
            id: ids.number(rollback_id),
            kind: if kind == "whole" { RollbackKind::Whole } else { RollbackKind::Partial },
            state,
            from: from.into(),
            until: until.map(Position::from),
            live,
        });
    }
}

async fn letters(
    pool: &PgPool,
    session: Uuid,
    ids: &mut Ids,
    calls: &HashMap<Uuid, u32>,
    observed: &mut Observed,
) {
    let letters: Vec<(Uuid, Uuid, Option<Uuid>, String)> = sqlx::query_as(
        "SELECT dead_letter_id, effect_id, undo_id, reason FROM undolog_dead_letters \
         WHERE session_id = $1 AND closed_at IS NULL ORDER BY dead_letter_id",
    )
    .bind(session)
    .fetch_all(pool)
    .await
    .expect("the letters");
    for (id, effect_id, undo_id, reason) in letters {
        observed.letters.push(LetterRow {
            id: ids.number(id),
            call: calls[&effect_id],
            undo_id: undo_id.map(|undo_id| ids.number(undo_id)),
            reason,
        });
    }
}
