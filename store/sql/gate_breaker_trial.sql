-- Whether the call that a breaker has let through is on its way.
-- Promise: sees what was committed before the breaker's lock was taken, which a look in the statement
-- that takes it would not. Lock: the breaker's row is held. Index: undolog_undo_attempt_number.
SELECT EXISTS (
  SELECT FROM undolog_undo_attempts a
  JOIN undolog_rollbacks r ON r.rollback_id = a.rollback_id AND r.org_id = a.org_id
  WHERE a.undo_id = $2 AND a.org_id = $1 AND a.finished_at IS NULL
    AND r.fence = a.fence AND r.lease_expires_at > $3)
