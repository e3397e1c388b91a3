-- Renews a worker's lease on its rollback.
-- Promise: only the holder of the newest fence renews. Lock: the rollback row. Index: primary key.
UPDATE undolog_rollbacks SET
  lease_expires_at = clock_timestamp() + $5 * interval '1 millisecond'
WHERE rollback_id = $1 AND org_id = $2 AND lease_owner = $3 AND fence = $4
