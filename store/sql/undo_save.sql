-- Writes back what a step changed of an undo entry.
-- Promise: what the entry calls and with which arguments is not touched; the database refuses
-- illegal moves. Lock: the session's lock is held. Index: primary key.
UPDATE undolog_undo_stack SET
  state = $3, retry_count = $4, round = $5, next_try_at = $6, interruptions = $7,
  deferred_since = $8, skip_reason = $9, cause = $10, superseded_by = $11, last_error = $12,
  last_error_raw = $13, compensated_at = $14, attempt = $15
WHERE undo_id = $1 AND org_id = $2
