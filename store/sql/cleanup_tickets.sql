-- Deletes tickets of ours that are over: done ones, and running ones whose worker must be gone.
-- Promise: a bounded number; a ticket is never the truth, and the reaper issues a missing one again.
-- Lock: the tickets' rows, those of others are skipped. Index: idx_undolog_jobs_due of the queue.
DELETE FROM apalis.jobs WHERE id IN (
  SELECT id FROM apalis.jobs
  WHERE job_type = ANY($1)
    AND ((status IN ('Done', 'Killed', 'Failed') AND done_at < clock_timestamp() - interval '1 minute')
      OR (status = 'Running' AND lock_at < clock_timestamp() - interval '15 minutes'))
  LIMIT $2 FOR UPDATE SKIP LOCKED)
