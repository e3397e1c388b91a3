-- Reads the calls of an undo entry as they are shown, the newest first, up to a number ($4) and to
-- so many bytes ($5; the first one always), with the first bytes of each answer ($3).
-- Promise: only calls of the organisation; what is stored holds no secret. Lock: none.
-- Index: undolog_undo_attempt_number.
WITH newest AS (
  SELECT undo_attempt_id, round, number, outcome, status, error, error_raw,
    substring(response FROM 1 FOR $3) AS response,
    response_truncated OR COALESCE(octet_length(response) > $3, false) AS response_truncated,
    method, url, started_at, finished_at, worker, result_known
  FROM undolog_undo_attempts
  WHERE org_id = $1 AND undo_id = $2
  ORDER BY round DESC, number DESC
  LIMIT $4
), sized AS (
  SELECT newest.*, row_number() OVER (ORDER BY round DESC, number DESC) AS place,
    sum(COALESCE(octet_length(response), 0) + octet_length(url) + octet_length(worker)
      + COALESCE(octet_length(error_raw), octet_length(error), 0))
      OVER (ORDER BY round DESC, number DESC) AS bytes
  FROM newest
)
SELECT undo_attempt_id, round, number, outcome, status, error, error_raw, response,
  response_truncated, method, url, started_at, finished_at, worker, result_known
FROM sized
WHERE place = 1 OR bytes <= $5
ORDER BY place
