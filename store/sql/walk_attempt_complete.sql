-- Records what a call came to.
-- Promise: goes by the attempt's id, whoever holds the rollback now; an outcome that is known is
-- never overwritten, one that was given up (interrupted, handed back) is.
-- Lock: the session's lock is held. Index: primary key.
WITH before AS (
  SELECT undo_attempt_id, outcome FROM undolog_undo_attempts
  WHERE undo_attempt_id = $1 AND org_id = $2
    AND (outcome IS NULL OR outcome IN ('interrupted', 'handed_back'))
  FOR NO KEY UPDATE
)
UPDATE undolog_undo_attempts a SET
  finished_at = $3, outcome = $4, status = $5, error = $6, error_raw = $7, response = $8,
  response_truncated = $9, retry_after_ms = $10, may_have_run = $11
FROM before b
WHERE a.undo_attempt_id = b.undo_attempt_id
RETURNING a.undo_id, a.round, a.result_known, b.outcome AS before, a.compensation_fn,
  a.host,
  EXISTS (
    SELECT FROM undolog_route_breakers k
    WHERE k.org_id = $2 AND k.compensation_fn = a.compensation_fn AND k.host = a.host
      AND k.state = 'half_open' AND k.probe_undo_id = a.undo_id) AS is_probe
