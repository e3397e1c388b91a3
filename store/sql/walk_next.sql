-- The entry that the walk works on next: the open one with the highest position in scope, with what
-- its calls came to so far, what was sent under its key and whether that may have been carried out,
-- and whether one above it was given up and not settled yet.
-- Promise: reads one entry, however long the stack is, and does not pass again over what a walk has
-- left behind: nothing open stands above $4. (An index of what is open would be read from its top,
-- over every entry that was undone since the oldest transaction of the server began.) Whether
-- something blocks is asked only where it counts ($5). Lock: the session's lock is held.
-- Index: undolog_undo_stack_session_position, idx_undolog_dead_letters_blocking,
-- undolog_undo_attempt_number.
SELECT u.undo_id, u.session_id, u.effect_id, u.attempt, u.stack_position, u.compensation_fn,
  u.compensation_version, u.compensation_args::text AS args_text,
  u.compensation_args_raw AS args_raw, u.result_templates, u.state, u.retry_count, u.max_retries,
  u.retry_backoff_ms, u.round, u.next_try_at, u.interruptions, u.deferred_since, u.skip_reason,
  u.cause, u.superseded_by, u.last_error, u.last_error_raw, u.registered_at, u.compensated_at,
  EXISTS (
    SELECT FROM undolog_undo_attempts a
    WHERE a.undo_id = u.undo_id AND a.org_id = $2 AND a.outcome = 'succeeded') AS has_success,
  COALESCE((
    SELECT true FROM undolog_undo_attempts a
    WHERE a.undo_id = u.undo_id AND a.org_id = $2 AND a.outcome IS NOT NULL AND a.may_have_run
    ORDER BY a.round DESC, a.number DESC LIMIT 1), false) AS may_have_run,
  l.undo_attempt_id AS last_attempt_id, l.outcome AS last_outcome, l.fence AS last_fence,
  l.number AS last_number, l.finished_at AS last_finished_at, l.call_digest AS sent_digest,
  l.result_known AS sent_with_result,
  $5 AND EXISTS (
    SELECT FROM undolog_dead_letters d
    JOIN undolog_undo_stack f ON f.undo_id = d.undo_id AND f.org_id = $2
    WHERE d.session_id = $1 AND d.org_id = $2 AND d.closed_at IS NULL
      AND d.reason <> 'MISSING_RESULT' AND f.state = 'failed'
      AND f.stack_position > u.stack_position) AS is_blocked
FROM undolog_undo_stack u
LEFT JOIN LATERAL (
  SELECT a.undo_attempt_id, a.outcome, a.fence, a.number, a.finished_at, a.call_digest,
    a.result_known
  FROM undolog_undo_attempts a
  WHERE a.undo_id = u.undo_id AND a.org_id = $2
  ORDER BY a.round DESC, a.number DESC LIMIT 1) l ON true
WHERE u.org_id = $2 AND u.undo_id = (
  SELECT undo_id FROM undolog_undo_stack
  WHERE session_id = $1 AND stack_position BETWEEN $3 AND $4 AND state IN ('pending', 'running')
  ORDER BY stack_position DESC LIMIT 1)
