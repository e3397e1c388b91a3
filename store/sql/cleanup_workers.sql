-- Deletes the queue's rows of workers that are gone and hold no ticket.
-- Promise: a bounded number. Lock: the rows. Index: lsidx of the queue.
DELETE FROM apalis.workers WHERE id IN (
  SELECT w.id FROM apalis.workers w
  WHERE w.worker_type = ANY($1) AND w.last_seen < (SELECT clock_timestamp()) - interval '10 minutes'
    AND NOT EXISTS (SELECT FROM apalis.jobs j WHERE j.lock_by = w.id)
  LIMIT $2 FOR UPDATE SKIP LOCKED)
