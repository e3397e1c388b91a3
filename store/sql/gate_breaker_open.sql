-- A call failed: opens the breaker of its route, if the call was the one that had been let through, or if
-- at least half of the newest calls in the window failed and they are enough for a verdict.
-- Promise: a breaker that is open, or waits for another call, stays as it is; a row only when it
-- was opened. Calls of before the breaker closed last do not count.
-- Lock: the breaker's row. Index: idx_undolog_undo_attempts_route, primary key.
WITH newest AS (
  SELECT a.outcome
  FROM undolog_undo_attempts a
  WHERE a.org_id = $1 AND a.compensation_fn = $8 AND a.host = $2 AND a.finished_at > greatest(
      $3::timestamptz - $4 * interval '1 millisecond',
      (SELECT b.window_started_at FROM undolog_route_breakers b
        WHERE b.org_id = $1 AND b.compensation_fn = $8 AND b.host = $2))
    -- A clock that stepped back leaves ends ahead of it.
    AND a.finished_at <= $3::timestamptz + interval '1 minute'
    AND a.outcome IN ('succeeded', 'retryable', 'permanent', 'deferred')
  ORDER BY a.finished_at DESC LIMIT $5
), verdict AS (
  SELECT count(*)::int AS calls, count(*) FILTER (WHERE outcome = 'retryable')::int AS failures
  FROM newest
)
INSERT INTO undolog_route_breakers AS b (org_id, compensation_fn, host, state, window_started_at,
  calls, failures, opened_at, opened_count)
SELECT $1, $8, $2, 'open', $3, v.calls, v.failures, $3, 1
FROM verdict v
WHERE $7 OR (v.calls >= $6 AND v.failures * 2 >= v.calls)
ON CONFLICT (org_id, compensation_fn, host) DO UPDATE SET
  state = 'open', window_started_at = EXCLUDED.window_started_at, calls = EXCLUDED.calls,
  failures = EXCLUDED.failures, opened_at = EXCLUDED.opened_at,
  opened_count = b.opened_count + 1, probe_undo_id = NULL
WHERE b.state = 'closed' OR (b.state = 'half_open' AND $7)
RETURNING b.opened_count
