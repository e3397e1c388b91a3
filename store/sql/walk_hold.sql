-- Ends a worker's step on its rollback: keeps the lease, or gives it back with the next due time.
-- Promise: writes nothing unless the fence is still the caller's. Lock: the session's lock and the
-- rollback row are held. Index: primary key.
UPDATE undolog_rollbacks SET
  lease_owner = $4, lease_expires_at = $5, due_at = $6, waits_for = $8
WHERE rollback_id = $1 AND org_id = $2 AND (fence = $3 OR $7)
