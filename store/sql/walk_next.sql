-- The entry that the walk works on next: the open one with the highest position in scope, with what
-- its calls came to so far, and whether one above it was given up and not settled yet.
-- Promise: reads one entry, however long the stack is. Lock: the session's lock is held.
-- Index: idx_undolog_undo_stack_session (pending), idx_undolog_undo_stack_running, then
-- undolog_undo_attempt_number.
SELECT u.undo_id, u.session_id, u.effect_id, u.attempt, u.stack_position, u.compensation_fn,
  u.compensation_version, u.compensation_args::text AS args_text,
  u.compensation_args_raw AS args_raw, u.result_templates, u.state, u.retry_count, u.max_retries,
  u.retry_backoff_ms, u.round, u.next_try_at, u.interruptions, u.deferred_since, u.skip_reason,
  u.cause, u.superseded_by, u.last_error, u.last_error_raw, u.registered_at, u.compensated_at,
  EXISTS (
    SELECT FROM undolog_undo_attempts a
    WHERE a.undo_id = u.undo_id AND a.org_id = $2 AND a.outcome = 'succeeded') AS has_success,
  l.undo_attempt_id AS last_attempt_id, l.outcome AS last_outcome, l.fence AS last_fence,
  l.number AS last_number,
  EXISTS (
    SELECT FROM undolog_dead_letters d
    JOIN undolog_undo_stack f ON f.undo_id = d.undo_id AND f.org_id = $2
    WHERE d.session_id = $1 AND d.org_id = $2 AND d.closed_at IS NULL
      AND d.reason <> 'MISSING_RESULT' AND f.state = 'failed'
      AND f.stack_position > u.stack_position) AS is_blocked
FROM undolog_undo_stack u
LEFT JOIN LATERAL (
  SELECT a.undo_attempt_id, a.outcome, a.fence, a.number
  FROM undolog_undo_attempts a
  WHERE a.undo_id = u.undo_id AND a.org_id = $2
  ORDER BY a.round DESC, a.number DESC LIMIT 1) l ON true
WHERE u.org_id = $2 AND u.undo_id = (
  SELECT top.undo_id FROM (
    (SELECT undo_id, stack_position FROM undolog_undo_stack
     WHERE session_id = $1 AND state = 'pending' AND stack_position >= $3
     ORDER BY stack_position DESC LIMIT 1)
    UNION ALL
    (SELECT undo_id, stack_position FROM undolog_undo_stack
     WHERE session_id = $1 AND state = 'running' AND stack_position >= $3)
  ) AS top
  ORDER BY top.stack_position DESC LIMIT 1)
