-- Makes the walking rollbacks of an organisation due that wait for a later time and that nobody
-- holds: what they waited for may be over.
-- Promise: a rollback that is held is left to its holder; the oldest come first. They come one
-- after the other, $2 milliseconds apart, or closer so that the last one is due within $3: what
-- waited for an endpoint must not fall upon it all at once. Nothing becomes due later than it was.
-- Lock: the rollbacks' rows, in id order. Index: idx_undolog_rollbacks_due.
WITH waiting AS (
  SELECT rollback_id FROM undolog_rollbacks
  WHERE org_id = $1 AND state = 'walking' AND due_at > (SELECT clock_timestamp())
    AND (lease_expires_at IS NULL OR lease_expires_at <= (SELECT clock_timestamp()))
  ORDER BY rollback_id
  FOR NO KEY UPDATE SKIP LOCKED
), spread AS (
  SELECT rollback_id, (row_number() OVER (ORDER BY rollback_id) - 1)
    * least($2::float8, $3::float8 / count(*) OVER ()) AS after_ms
  FROM waiting
)
UPDATE undolog_rollbacks r
SET due_at = least(r.due_at, clock_timestamp() + s.after_ms * interval '1 millisecond')
FROM spread s
WHERE r.rollback_id = s.rollback_id AND r.org_id = $1
RETURNING r.rollback_id, r.due_at
