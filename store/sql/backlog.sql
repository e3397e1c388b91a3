-- How many rollbacks of all organisations are due, are held by a worker, or wait, and for what: the
-- oldest ones, up to a number ($1).
-- Promise: no payload; each rollback is counted once. Lock: none. Index: idx_undolog_rollbacks_due.
SELECT what, count(*) AS rollbacks
FROM (
  SELECT CASE
    WHEN lease > t THEN 'running'
    WHEN due_at <= t THEN 'due'
    ELSE COALESCE(waits_for, 'other')
  END AS what
  FROM (
    SELECT due_at, lease, waits_for FROM undolog_due_rollbacks ORDER BY due_at LIMIT $1) AS one,
    (SELECT clock_timestamp() AS t OFFSET 0) AS now
) AS each
GROUP BY what
