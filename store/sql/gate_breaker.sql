-- Reads a breaker under its lock, with whether the call that was let through is on its way.
-- Promise: no row when somebody else holds the lock, so that nothing waits for it here.
-- Lock: the breaker's row, FOR NO KEY UPDATE SKIP LOCKED. Index: primary key, then
-- undolog_undo_attempt_number.
SELECT b.state, b.opened_at, b.opened_count, b.probe_undo_id,
  EXISTS (
    SELECT FROM undolog_undo_attempts a
    JOIN undolog_rollbacks r ON r.rollback_id = a.rollback_id AND r.org_id = a.org_id
    WHERE a.undo_id = b.probe_undo_id AND a.org_id = $1 AND a.finished_at IS NULL
      AND r.fence = a.fence AND r.lease_expires_at > $3) AS is_probe_alive
FROM undolog_breakers b
WHERE b.org_id = $1 AND b.host = $2
FOR NO KEY UPDATE OF b SKIP LOCKED
