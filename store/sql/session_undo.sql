-- Reads a session's undo stack as it is shown, the highest position first.
-- Promise: only entries of the organisation. Lock: none. Index: undolog_undo_stack_session_position.
SELECT undo_id, effect_id, attempt, stack_position AS position, compensation_fn,
  compensation_version, compensation_args::text AS args_text, compensation_args_raw AS args_raw,
  state, retry_count, max_retries, retry_backoff_ms, last_error, last_error_raw, skip_reason,
  registered_at, compensated_at, next_try_at
FROM undolog_undo_stack
WHERE org_id = $1 AND session_id = $2
ORDER BY stack_position DESC
LIMIT $3
