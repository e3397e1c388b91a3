//! What must hold after every scenario, whatever happened in it.

use std::collections::{BTreeMap, HashMap};

use sqlx::{PgPool, Row};
use undolog_core::state::{Fold, Step, Subject, fold};
use uuid::Uuid;

use crate::witness::Call;

/// Folds the session's events and compares the outcome with its rows, subject by subject; the
/// sequence must have no gap and every step must be legal.
pub async fn fold_check(pool: &PgPool, session: Uuid) {
    let events = sqlx::query(
        "SELECT seq, subject, subject_id::text AS id, kind, from_state, to_state
         FROM undolog_effect_events WHERE session_id = $1 ORDER BY seq",
    )
    .bind(session)
    .fetch_all(pool)
    .await
    .expect("read the events");
    assert!(!events.is_empty(), "session {session} has no events");
    let steps = events.iter().map(|event| Step {
        seq: u64::try_from(event.get::<i64, _>(0)).expect("a sequence number"),
        subject: event.get::<&str, _>(1).parse::<Subject>().expect("the table's own check"),
        id: event.get(2),
        kind: event.get(3),
        from: event.get(4),
        to: event.get::<Option<&str>, _>(5).expect("an event that leads to a state"),
    });
    let folded = fold(steps).unwrap_or_else(|error| panic!("session {session}: {error}"));
    let rows = rows(pool, session).await;
    let differ: Vec<String> = folded
        .keys()
        .chain(rows.keys())
        .filter(|key| folded.get(*key) != rows.get(*key))
        .map(|key @ (subject, id)| {
            format!("{subject} {id}: events say {:?}, its row {:?}", folded.get(key), rows.get(key))
        })
        .collect();
    assert!(differ.is_empty(), "session {session}:\n  {}", differ.join("\n  "));
    counters_check(pool, session).await;
}

/// The documented counters of a session are the numbers of its rows, whoever wrote them. Of
/// compensations they count the moves: what is undone once more counts twice.
async fn counters_check(pool: &PgPool, session: Uuid) {
    let (kept, counted): (Vec<i64>, Vec<i64>) = sqlx::query_as(
        "SELECT ARRAY[tool_calls_total, compensations_total, approvals_pending]::bigint[], ARRAY[
           (SELECT count(*) FROM undolog_effect_log WHERE session_id = $1),
           (SELECT count(*) FROM undolog_effect_events
            WHERE session_id = $1 AND subject = 'effect' AND to_state = 'compensated'
              AND from_state IS DISTINCT FROM 'compensated'),
           (SELECT count(*) FROM undolog_approval_requests
            WHERE session_id = $1 AND state = 'pending')]
         FROM undolog_sessions WHERE session_id = $1",
    )
    .bind(session)
    .fetch_one(pool)
    .await
    .expect("read the counters");
    assert_eq!(kept, counted, "session {session}: calls, compensations, pending approvals");
}

/// The states of the session's rows.
async fn rows(pool: &PgPool, session: Uuid) -> Fold {
    let rows: Vec<(String, String, String)> = sqlx::query_as(
        "SELECT 'session', session_id::text, state::text FROM undolog_sessions WHERE session_id = $1
         UNION ALL SELECT 'effect', effect_id::text, state::text FROM undolog_effect_log
           WHERE session_id = $1
         UNION ALL SELECT 'undo', undo_id::text, state FROM undolog_undo_stack
           WHERE session_id = $1
         UNION ALL SELECT 'approval', approval_request_id::text, state::text
           FROM undolog_approval_requests WHERE session_id = $1
         UNION ALL SELECT 'rollback', rollback_id::text, state FROM undolog_rollbacks
           WHERE session_id = $1
         UNION ALL SELECT 'dead_letter', dead_letter_id::text,
           CASE WHEN closed_at IS NULL THEN 'open' ELSE 'closed' END FROM undolog_dead_letters
           WHERE session_id = $1",
    )
    .bind(session)
    .fetch_all(pool)
    .await
    .expect("read the rows");
    rows.into_iter()
        .map(|(subject, id, state)| ((subject.parse::<Subject>().expect("ours"), id), state))
        .collect()
}

/// One effect with all that can settle it.
struct Settled {
    effect_id: Uuid,
    tool: String,
    tier: String,
    state: String,
    outcome: Option<String>,
    newest_entry: Option<String>,
    skip_reason: Option<String>,
    open_dead_letters: i64,
}

impl Settled {
    /// What is wrong with it after a whole rollback, if anything.
    fn complaint(&self) -> Option<String> {
        let maybe_applied = matches!(self.state.as_str(), "committed" | "unknown")
            || (self.state == "failed" && self.outcome.as_deref() == Some("maybe_applied"));
        let skipped = self.newest_entry.as_deref() == Some("skipped") && self.skip_reason.is_some();
        let settled = match (self.tier.as_str(), self.state.as_str()) {
            (_, "rejected") | ("compensable", "compensated") => self.open_dead_letters == 0,
            (_, "failed") if !maybe_applied => self.open_dead_letters == 0,
            ("irreversible", "committed") => self.open_dead_letters == 0,
            ("irreversible", _) => maybe_applied && self.open_dead_letters == 1,
            (_, "compensation_failed") if skipped => self.open_dead_letters == 0,
            (_, "compensation_failed") => self.open_dead_letters == 1,
            _ if maybe_applied && skipped => self.open_dead_letters == 0,
            _ => maybe_applied && self.open_dead_letters == 1,
        };
        (!settled).then(|| {
            let Self { effect_id, tool, tier, state, outcome, newest_entry, .. } = self;
            format!(
                "{tool} {effect_id} ({tier}): {state} {outcome:?}, entry {newest_entry:?} {:?}, \
                 {} open dead letters",
                self.skip_reason, self.open_dead_letters
            )
        })
    }
}

/// Checks a session whose whole rollback has ended: each effect that happened or may have happened
/// is compensated, skipped with a reason, residue (irreversible), or in exactly one open dead
/// letter; a `compensated` session has no open entry and no open dead letter.
pub async fn settled_check(pool: &PgPool, session: Uuid) {
    let rows = sqlx::query(
        "SELECT e.effect_id, e.tool_name, e.tier::text, e.state::text, e.outcome, u.state,
                u.skip_reason,
                (SELECT count(*) FROM undolog_dead_letters d
                 WHERE d.effect_id = e.effect_id AND d.closed_at IS NULL)
         FROM undolog_effect_log e
         LEFT JOIN LATERAL (SELECT state, skip_reason FROM undolog_undo_stack u
           WHERE u.effect_id = e.effect_id ORDER BY stack_position DESC LIMIT 1) u ON true
         WHERE e.session_id = $1 ORDER BY e.position",
    )
    .bind(session)
    .fetch_all(pool)
    .await
    .expect("read the effects");
    let effects = rows.iter().map(|row| Settled {
        effect_id: row.get(0),
        tool: row.get(1),
        tier: row.get(2),
        state: row.get(3),
        outcome: row.get(4),
        newest_entry: row.get(5),
        skip_reason: row.get(6),
        open_dead_letters: row.get(7),
    });
    let complaints: Vec<String> = effects.filter_map(|effect| effect.complaint()).collect();
    assert!(complaints.is_empty(), "not settled:\n  {}", complaints.join("\n  "));
    session_check(pool, session).await;
}

async fn session_check(pool: &PgPool, session: Uuid) {
    let (state, open, letters, residue, counted): (String, i64, i64, i64, i32) = sqlx::query_as(
        "SELECT s.state::text,
           (SELECT count(*) FROM undolog_undo_stack u WHERE u.session_id = s.session_id
              AND u.state IN ('pending', 'running')),
           (SELECT count(*) FROM undolog_dead_letters d WHERE d.session_id = s.session_id
              AND d.closed_at IS NULL),
           (SELECT count(*) FROM undolog_effect_log e WHERE e.session_id = s.session_id
              AND e.tier = 'irreversible' AND e.state = 'committed'),
           s.residue_count
         FROM undolog_sessions s WHERE s.session_id = $1",
    )
    .bind(session)
    .fetch_one(pool)
    .await
    .expect("read the session");
    let expected = if letters == 0 { "compensated" } else { "halted" };
    assert_eq!(state, expected, "{open} open entries, {letters} open dead letters");
    assert!(state != "compensated" || open == 0, "compensated with {open} open entries");
    assert_eq!(i64::from(counted), residue, "residue_count");
}

/// Checks that the witness's compensation calls came in LIFO order, each with the key of its entry:
/// a call of a lower position never arrives before the last one of a higher position. An entry that
/// replaces another one stands in its place.
pub async fn lifo_check(pool: &PgPool, session: Uuid, undo_calls: &[Call]) {
    let entries: Vec<(Uuid, i32, Option<Uuid>)> = sqlx::query_as(
        "SELECT undo_id, stack_position, superseded_by FROM undolog_undo_stack
         WHERE session_id = $1 ORDER BY stack_position",
    )
    .bind(session)
    .fetch_all(pool)
    .await
    .expect("read the undo stack");
    let mut position: HashMap<String, i32> = HashMap::new();
    for (id, at, replaced_by) in entries {
        let at = *position.entry(id.to_string()).or_insert(at);
        if let Some(replaced_by) = replaced_by {
            position.entry(replaced_by.to_string()).or_insert(at);
        }
    }
    let mut paths: BTreeMap<&str, &str> = BTreeMap::new();
    let mut lowest = i32::MAX;
    for call in undo_calls {
        let key = call.key().unwrap_or_else(|| panic!("no idempotency key: {}", call.line()));
        let at = *position.get(key).unwrap_or_else(|| panic!("a foreign key: {}", call.line()));
        assert!(at <= lowest, "position {at} after position {lowest}: {}", call.line());
        lowest = at;
        let path = paths.entry(key).or_insert(&call.path);
        assert_eq!(*path, call.path, "one key, two targets: {}", call.line());
    }
}

/// All three checks at the end of a whole rollback.
pub async fn rollback_check(pool: &PgPool, session: Uuid, undo_calls: &[Call]) {
    fold_check(pool, session).await;
    settled_check(pool, session).await;
    lifo_check(pool, session, undo_calls).await;
}
