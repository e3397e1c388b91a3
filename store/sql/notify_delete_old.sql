-- Deletes notifications that were finished a week ago.
-- Promise: a bounded number. Lock: the rows. Index: idx_undolog_notifications_old.
DELETE FROM undolog_notifications WHERE org_id = $1 AND notification_id IN (
  SELECT notification_id FROM undolog_notifications
  WHERE org_id = $1 AND state <> 'pending' AND finished_at < clock_timestamp() - interval '7 days'
  LIMIT $2 FOR UPDATE SKIP LOCKED)
