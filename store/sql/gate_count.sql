-- Counts a call that begins now, and forgets what no window reaches any more.
-- Promise: a bounded number of rows is left per function. Lock: the function's advisory lock is held.
-- Index: primary key.
WITH forgotten AS (
  DELETE FROM undolog_call_counts
  WHERE org_id = $1 AND compensation_fn = $2
    AND second < $3::timestamptz - interval '2 minutes'
)
INSERT INTO undolog_call_counts AS c (org_id, compensation_fn, second, calls)
VALUES ($1, $2, date_trunc('second', $3::timestamptz), 1)
ON CONFLICT (org_id, compensation_fn, second) DO UPDATE SET calls = c.calls + 1
