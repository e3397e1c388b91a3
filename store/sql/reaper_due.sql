-- Rollbacks of all organisations that are due and that nobody holds, the oldest first.
-- Promise: no payload. Lock: none. Index: idx_undolog_rollbacks_due.
SELECT org_id, subject_id, fence,
  (extract(epoch FROM clock_timestamp() - due_at) * 1000)::bigint AS age_ms
FROM undolog_due
WHERE kind = 'rollback' AND due_at <= clock_timestamp()
  AND (lease IS NULL OR lease <= clock_timestamp())
ORDER BY due_at LIMIT $1
