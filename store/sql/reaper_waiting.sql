-- How many rollbacks of all organisations wait for a later time: for a pause, a breaker, a retry, a
-- call under way. At most $1 are counted.
-- Promise: no payload. Lock: none. Index: idx_undolog_rollbacks_due.
SELECT count(*) FROM (
  SELECT FROM undolog_due
  WHERE kind = 'rollback' AND due_at > (SELECT clock_timestamp()) AND lease IS NULL
  LIMIT $1) AS waiting
