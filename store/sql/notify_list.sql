-- Lists notifications of some states ($2) from the newest on, after a place in that order ($3, $4),
-- up to a number of rows ($5). They are small, so a page needs no bound in bytes.
-- Promise: only rows of the organisation. Lock: none.
-- Index: idx_undolog_notifications_listed, once per state.
SELECT one.*
FROM (SELECT DISTINCT unnest($2::text[])) AS wanted (state)
CROSS JOIN LATERAL (
  SELECT n.notification_id, n.session_id, n.kind, n.state, n.body::text AS body, n.attempts,
    n.last_error, n.created_at, n.due_at, n.finished_at, n.replayed_at, n.replayed_by
  FROM undolog_notifications n
  WHERE n.org_id = $1 AND n.state = wanted.state
    AND ($3::timestamptz IS NULL OR (n.created_at, n.notification_id) < ($3, $4::uuid))
  ORDER BY n.created_at DESC, n.notification_id DESC
  LIMIT $5
) AS one
ORDER BY one.created_at DESC, one.notification_id DESC
LIMIT $5
