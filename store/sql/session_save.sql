-- Writes back what a step changed of its session, with the step's events, in one statement; answers
-- how many session rows were written.
-- Promise: only the holder of the session's lock runs it, so the events' numbers have no gaps. The
-- documented counters are written here, since their triggers stand aside in a step
-- (session_lock.sql): the row has one new version, not one for each effect and approval. Lock: the session row, held by the caller.
-- Index: primary keys.
WITH saved AS (
  UPDATE undolog_sessions SET
    state = $3::text::undolog_session_state, event_seq = $4, last_position = $5, max_step = $6,
    effects_total = $7, numbering = $8, completed_at = $9, failed_at = $10, failure_reason = $11,
    failure_reason_raw = $12, last_executed_at = $13, last_rpc_at = $14, lease_renewed_at = $15,
    lease_hold_until = $16, grant_lost_at = $17, lease_failed_at = $18, residue_count = $19,
    unverified_count = $20, settled_at = $21, commits_total = $33, tool_calls_total = $34,
    compensations_total = $35, approvals_pending = $36, undo_top = $37,
    settled_by = CASE WHEN $21::timestamptz IS NOT NULL THEN settled_by END,
    settled_note = CASE WHEN $21::timestamptz IS NOT NULL THEN settled_note END
  WHERE session_id = $1 AND org_id = $2
  RETURNING 1
), appended AS (
  INSERT INTO undolog_effect_events (session_month, org_id, session_id, seq, kind, subject,
    subject_id, from_state, to_state, attempt, actor, occurred_at, detail, epoch)
  SELECT $22, $2, $1, $23 + e.n, e.kind, e.subject, e.subject_id, e.from_state, e.to_state,
    e.attempt, e.actor, $24, e.detail, (SELECT epoch FROM undolog_cluster)
  FROM unnest($25::text[], $26::text[], $27::uuid[], $28::text[], $29::text[], $30::int[],
    $31::text[], $32::jsonb[]) WITH ORDINALITY
    AS e (kind, subject, subject_id, from_state, to_state, attempt, actor, detail, n)
)
SELECT count(*) FROM saved
