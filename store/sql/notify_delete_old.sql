-- Deletes notifications that were finished a week ago.
-- Promise: a bounded number. Lock: the rows. Index: idx_undolog_notifications_finished.
DELETE FROM undolog_notifications WHERE org_id = $1 AND notification_id = ANY (ARRAY(
  SELECT notification_id FROM undolog_notifications
  WHERE org_id = $1 AND state <> 'pending'
    AND finished_at < (SELECT clock_timestamp()) - interval '7 days'
  ORDER BY finished_at
  LIMIT $2 FOR UPDATE SKIP LOCKED))
