-- Approvals of one organisation that were given a day ago and never used.
-- Promise: a bounded number, none that has to wait for its day after an outage of ours. Time: the
-- database's clock, read once. Lock: none; each one is judged again under its session's lock.
-- Index: idx_undolog_approval_unused.
WITH k AS MATERIALIZED (
  SELECT c.t - interval '24 hours' AS before, undolog_running_since(false, c.t) AS direct,
    undolog_running_since(true, c.t) AS via
  FROM (SELECT clock_timestamp() AS t OFFSET 0) c
)
SELECT a.approval_request_id
FROM undolog_approval_requests a
JOIN undolog_sessions s ON s.session_id = a.session_id AND s.org_id = a.org_id
CROSS JOIN k
WHERE a.org_id = $1 AND a.state IN ('approved', 'auto_approved') AND a.granted_at IS NULL
  AND a.voided_at IS NULL AND a.resolved_at <= (SELECT before FROM k)
  AND CASE WHEN s.via_proxy THEN k.via ELSE k.direct END <= k.before
ORDER BY a.resolved_at LIMIT $2
