-- Deletes tickets of ours that are over: done ones, and running ones whose worker must be gone.
-- Promise: a bounded number; a ticket is never the truth, and the reaper issues a missing one again.
-- Lock: the tickets' rows, those of others are skipped.
-- Index: idx_undolog_jobs_over; sidx of the queue for the few that run.
WITH over AS (
  SELECT id FROM apalis.jobs
  WHERE status IN ('Done', 'Killed', 'Failed') AND job_type = ANY($1)
    AND done_at < (SELECT clock_timestamp()) - interval '1 minute'
  ORDER BY done_at
  LIMIT $2 FOR UPDATE SKIP LOCKED
), lost AS (
  SELECT id FROM apalis.jobs
  WHERE status = 'Running' AND job_type = ANY($1)
    AND lock_at < (SELECT clock_timestamp()) - interval '15 minutes'
  LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM apalis.jobs
WHERE id = ANY (ARRAY(SELECT id FROM over UNION ALL SELECT id FROM lost LIMIT $2))
