-- Organisations with a due notification that nobody holds.
-- Promise: no payload; steps from one organisation to the next through the index, and reads of each
-- only what it takes to know. Lock: none. Index: idx_undolog_notifications_due.
WITH RECURSIVE org AS (
  (SELECT org_id FROM undolog_due_notifications ORDER BY org_id LIMIT 1)
  UNION ALL
  SELECT (SELECT d.org_id FROM undolog_due_notifications d
    WHERE d.org_id > org.org_id ORDER BY d.org_id LIMIT 1)
  FROM org WHERE org.org_id IS NOT NULL
)
SELECT org.org_id FROM org
WHERE EXISTS (SELECT FROM undolog_due_notifications d
  WHERE d.org_id = org.org_id AND d.due_at <= (SELECT clock_timestamp())
    AND (d.lease IS NULL OR d.lease <= (SELECT clock_timestamp())))
