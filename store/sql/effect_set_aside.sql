-- Keeps an earlier attempt of an effect: its grant and what it came to.
-- Promise: one row per attempt. Lock: the session's lock is held. Index: primary key.
INSERT INTO undolog_effect_attempts (effect_id, attempt, org_id, session_id, position, granted_at,
  ended_at, state, outcome, error, error_raw, duration_ms, approval_request_id,
  operator_said)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
