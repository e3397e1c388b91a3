-- Claims an organisation's next due notification for one try.
-- Promise: one holder at a time; a bounded number on their way, so that a slow receiver is not
-- flooded; the try is counted before it is made. Time: the database's clock.
-- Reads no more rows than are on their way, and one. Lock: the notification's row; those of others
-- are skipped. Index: idx_undolog_notifications_due, idx_undolog_notifications_leased.
WITH next AS (
  SELECT n.notification_id
  FROM undolog_notifications n
  WHERE n.org_id = $1 AND n.state = 'pending' AND n.due_at <= (SELECT clock_timestamp())
    AND (n.lease_expires_at IS NULL OR n.lease_expires_at <= (SELECT clock_timestamp()) OR $4)
    AND (SELECT count(*) FROM (SELECT FROM undolog_notifications b
      WHERE b.org_id = $1 AND b.state = 'pending'
        AND b.lease_expires_at > (SELECT clock_timestamp()) LIMIT $3) AS held) < $3
  ORDER BY n.due_at
  LIMIT 1 FOR UPDATE SKIP LOCKED
)
UPDATE undolog_notifications n SET
  lease_expires_at = clock_timestamp() + $2 * interval '1 millisecond', fence = n.fence + 1,
  attempts = n.attempts + 1
FROM next, undolog_orgs o
WHERE n.notification_id = next.notification_id AND o.org_id = $1
RETURNING n.notification_id, n.fence, n.attempts, n.body::text AS body_text,
  extract(epoch FROM clock_timestamp())::bigint AS sent_at_seconds,
  (extract(epoch FROM clock_timestamp() - COALESCE(n.replayed_at, n.created_at)) * 1000)::bigint
    AS age_ms,
  o.webhook_url, o.webhook_secret, o.slug AS org_slug
