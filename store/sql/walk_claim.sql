-- Claims a rollback for one worker.
-- Promise: of racing workers one gets the row, and only while it is due and no lease is live; the
-- new fence makes every later write of an earlier holder fail. Time: the database's clock.
-- Lock: the rollback row only. Index: primary key.
UPDATE undolog_rollbacks r SET
  lease_owner = $3, lease_expires_at = clock_timestamp() + $4 * interval '1 millisecond',
  fence = r.fence + 1
FROM undolog_orgs o
WHERE r.rollback_id = $1 AND r.org_id = $2 AND o.org_id = r.org_id
  AND r.state IN ('draining', 'walking')
  AND r.due_at <= clock_timestamp()
  AND (r.lease_expires_at IS NULL OR r.lease_expires_at <= clock_timestamp() OR $5)
RETURNING r.session_id, r.fence, o.slug AS org_slug,
  (extract(epoch FROM clock_timestamp() - r.due_at) * 1000)::bigint AS due_age_ms
