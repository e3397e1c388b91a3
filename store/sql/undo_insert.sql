-- Registers an undo entry before its effect may run.
-- Promise: the position is unique in the session. Lock: the session's lock is held.
-- Index: undolog_undo_stack_session_position.
INSERT INTO undolog_undo_stack (undo_id, org_id, session_id, effect_id, attempt, stack_position,
  compensation_fn, compensation_version, compensation_args, compensation_args_raw,
  result_templates, max_retries, retry_backoff_ms, registered_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9::text::jsonb, $10, $11, $12, $13, $14)
