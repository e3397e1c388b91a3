-- Records that a call is about to be made, before it is made.
-- Promise: numbers of an entry's round have no gaps. Lock: the session's lock is held.
-- Index: undolog_undo_attempt_number.
INSERT INTO undolog_undo_attempts (org_id, session_id, undo_id, rollback_id, round, number, fence,
  worker, fn_hash, method, url, result_known, started_at, compensation_fn, host, call_digest)
SELECT $1, $2, $3, $4, $5,
  1 + COALESCE((SELECT max(a.number) FROM undolog_undo_attempts a
    WHERE a.undo_id = $3 AND a.round = $5 AND a.org_id = $1), 0),
  $6, $7, $8, $9, $10, $11, $12, $13, $14, $15
RETURNING undo_attempt_id, number
