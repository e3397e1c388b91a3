-- Rollbacks that are due and that nobody holds, of other organisations than these, the oldest first.
-- Promise: no payload, a bounded number. Lock: none. Index: idx_undolog_rollbacks_due.
SELECT org_id, subject_id
FROM undolog_due
WHERE kind = 'rollback' AND due_at <= clock_timestamp()
  AND (lease IS NULL OR lease <= clock_timestamp())
  AND NOT org_id = ANY ($1::uuid[])
ORDER BY due_at LIMIT $2
