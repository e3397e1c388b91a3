-- Reads the calls of an undo entry as they are shown, the newest first ($4), with the first bytes
-- of each answer ($3).
-- Promise: only calls of the organisation; what is stored holds no secret. Lock: none.
-- Index: undolog_undo_attempt_number.
SELECT undo_attempt_id, round, number, outcome, status, error, error_raw,
  substring(response FROM 1 FOR $3) AS response,
  response_truncated OR COALESCE(octet_length(response) > $3, false) AS response_truncated,
  method, url, started_at, finished_at, worker, result_known
FROM undolog_undo_attempts
WHERE org_id = $1 AND undo_id = $2
ORDER BY round DESC, number DESC
LIMIT $4
