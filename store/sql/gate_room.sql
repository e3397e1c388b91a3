-- How many calls of a function run now, and since when its rate is used up, if it is.
-- Promise: a call counts as running while its holder's claim is live; every window of a minute has
-- at most $3 beginnings, whatever the order in which they were written.
-- Lock: the function's advisory lock is held. Index: idx_undolog_undo_attempts_running,
-- idx_undolog_undo_attempts_started.
SELECT
  (SELECT count(*)
   FROM undolog_undo_attempts a
   JOIN undolog_rollbacks r ON r.rollback_id = a.rollback_id AND r.org_id = a.org_id
   WHERE a.org_id = $1 AND a.compensation_fn = $2 AND a.finished_at IS NULL
     AND r.fence = a.fence AND r.lease_expires_at > clock_timestamp()) AS running,
  (SELECT a.started_at
   FROM undolog_undo_attempts a
   WHERE $3::int IS NOT NULL AND a.org_id = $1 AND a.compensation_fn = $2
     AND a.started_at > $4::timestamptz - interval '1 minute'
   ORDER BY a.started_at DESC OFFSET greatest($3 - 1, 0) LIMIT 1) AS full_since
