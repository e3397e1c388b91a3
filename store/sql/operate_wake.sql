-- Makes the walking rollbacks of an organisation due that wait for a later time and that nobody
-- holds: what they waited for may be over.
-- Promise: a rollback that is held is left to its holder; the oldest come first.
-- Lock: the rollbacks' rows, in id order. Index: idx_undolog_rollbacks_due.
WITH waiting AS (
  SELECT rollback_id FROM undolog_rollbacks
  WHERE org_id = $1 AND state = 'walking' AND due_at > clock_timestamp()
    AND (lease_expires_at IS NULL OR lease_expires_at <= clock_timestamp())
  ORDER BY rollback_id
  FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE undolog_rollbacks r SET due_at = clock_timestamp()
FROM waiting w
WHERE r.rollback_id = w.rollback_id AND r.org_id = $1
RETURNING r.rollback_id, r.fence, r.due_at
