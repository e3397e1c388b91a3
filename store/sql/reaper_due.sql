-- Rollbacks of all organisations that are due and that nobody holds, the oldest first.
-- Promise: no payload; reads as many rows as it answers, and those that are held. Lock: none.
-- Index: idx_undolog_rollbacks_due.
SELECT org_id, subject_id, fence,
  (extract(epoch FROM clock_timestamp() - due_at) * 1000)::bigint AS age_ms
FROM undolog_due_rollbacks
WHERE due_at <= (SELECT clock_timestamp())
  AND (lease IS NULL OR lease <= (SELECT clock_timestamp()))
ORDER BY due_at LIMIT $1
