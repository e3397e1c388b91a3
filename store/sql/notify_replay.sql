-- Has notifications that were given up sent again: named ones ($2), or the oldest ones, at most $4.
-- Promise: only what was given up; each keeps its id, its tries begin anew, and who did it ($3)
-- stands in the row. Lock: the rows; what somebody else replays just now is skipped.
-- Index: idx_undolog_notifications_listed, else the primary key.
WITH wanted AS (
  SELECT notification_id FROM undolog_notifications
  WHERE org_id = $1 AND state = 'failed' AND ($2::uuid[] IS NULL OR notification_id = ANY($2))
  ORDER BY created_at, notification_id
  LIMIT $4 FOR UPDATE SKIP LOCKED
)
UPDATE undolog_notifications n SET state = 'pending', due_at = clock_timestamp(), attempts = 0,
  lease_expires_at = NULL, finished_at = NULL, replayed_at = clock_timestamp(), replayed_by = $3
FROM wanted w
WHERE n.notification_id = w.notification_id AND n.org_id = $1
