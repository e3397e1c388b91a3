-- Reads one undo entry by its id as it is shown.
-- Promise: only an entry of the organisation and, when a principal is given ($3), only of its own
-- session. Lock: none. Index: primary keys.
SELECT u.undo_id, u.effect_id, u.attempt, u.stack_position AS position, u.compensation_fn,
  u.compensation_version, u.compensation_args::text AS args_text,
  u.compensation_args_raw AS args_raw, false AS args_left_out, u.state, u.retry_count,
  u.max_retries, u.retry_backoff_ms, u.last_error, u.last_error_raw, u.skip_reason,
  u.registered_at, u.compensated_at, u.next_try_at, 1::bigint AS matched
FROM undolog_undo_stack u
JOIN undolog_sessions s ON s.session_id = u.session_id AND s.org_id = $1
WHERE u.org_id = $1 AND u.undo_id = $2 AND ($3::text IS NULL OR s.principal = $3)
