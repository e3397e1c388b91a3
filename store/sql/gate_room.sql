-- How many calls of a function run now, and until when its rate is used up, if it is.
-- Promise: a call counts as running while its holder's claim is live; every window of a minute has
-- at most $3 beginnings. They are counted by the second, so that at most 61 rows are read, whatever
-- the rate is: a second counts until a minute after its end.
-- Lock: the function's advisory lock is held. Index: idx_undolog_undo_attempts_running, primary key
-- of undolog_call_counts.
SELECT
  (SELECT count(*)
   FROM undolog_undo_attempts a
   JOIN undolog_rollbacks r ON r.rollback_id = a.rollback_id AND r.org_id = a.org_id
   WHERE a.org_id = $1 AND a.compensation_fn = $2 AND a.finished_at IS NULL
     AND r.fence = a.fence AND r.lease_expires_at > clock_timestamp()) AS running,
  (SELECT max(c.second) + interval '61 seconds'
   FROM (
     SELECT b.second, sum(b.calls) OVER (ORDER BY b.second DESC) AS calls
     FROM undolog_call_counts b
     WHERE b.org_id = $1 AND b.compensation_fn = $2
       AND b.second > $4::timestamptz - interval '61 seconds'
       -- A clock that stepped back leaves seconds ahead of it.
       AND b.second <= $4::timestamptz + interval '1 minute') AS c
   WHERE c.calls >= $3::int) AS full_until
