-- Organisations with notifications that were finished a week ago.
-- Promise: no payload; steps from one organisation to the next through the index.
-- Lock: none. Index: idx_undolog_notifications_finished.
WITH RECURSIVE org AS (
  (SELECT org_id FROM undolog_due_old_notifications ORDER BY org_id LIMIT 1)
  UNION ALL
  SELECT (SELECT d.org_id FROM undolog_due_old_notifications d
    WHERE d.org_id > org.org_id ORDER BY d.org_id LIMIT 1)
  FROM org WHERE org.org_id IS NOT NULL
)
SELECT org.org_id FROM org
WHERE EXISTS (SELECT FROM undolog_due_old_notifications d
  WHERE d.org_id = org.org_id
    AND d.due_at <= (SELECT clock_timestamp()) - interval '7 days')
