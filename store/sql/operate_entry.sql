-- Reads one undo entry as it is shown.
-- Promise: only an entry of the organisation. Lock: the session's lock is held. Index: primary key.
SELECT undo_id, effect_id, attempt, stack_position AS position, compensation_fn,
  compensation_version, compensation_args::text AS args_text, compensation_args_raw AS args_raw,
  false AS args_left_out,
  state, retry_count, max_retries, retry_backoff_ms, last_error, last_error_raw, skip_reason,
  registered_at, compensated_at, next_try_at, 1::bigint AS matched
FROM undolog_undo_stack
WHERE org_id = $1 AND undo_id = $2
