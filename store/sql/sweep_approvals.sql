-- Requests of one organisation whose window is over and that their policy resolves now.
-- Promise: a bounded number; what is still held for people is not among them, so it takes nobody's
-- place. Time: the database's clock, read once. Lock: none; each one is judged again under its
-- session's lock. Index: idx_undolog_approval_timeout.
WITH k AS MATERIALIZED (
  SELECT c.t, undolog_running_since(false, c.t) AS direct, undolog_running_since(true, c.t) AS via,
    e.away_from, e.resumed_at, p.away_from AS via_away_from, p.resumed_at AS via_resumed_at
  FROM (SELECT clock_timestamp() AS t OFFSET 0) c
  JOIN undolog_service e ON e.service = 'engine'
  LEFT JOIN undolog_proxies p ON p.org_id = $1
)
SELECT a.approval_request_id
FROM undolog_approval_requests a
JOIN undolog_sessions s ON s.session_id = a.session_id AND s.org_id = a.org_id
JOIN undolog_orgs o ON o.org_id = a.org_id
CROSS JOIN k
WHERE a.org_id = $1 AND a.state = 'pending' AND a.timeout_at <= (SELECT t FROM k)
  AND k.t > greatest(a.timeout_at, CASE WHEN s.via_proxy THEN k.via ELSE k.direct END)
  AND CASE WHEN s.via_proxy THEN k.via ELSE k.direct END IS NOT NULL
  AND NOT (a.auto_approve_on_timeout AND NOT o.never_auto_approve_tags && a.risk_tags
    AND (COALESCE(a.timeout_at BETWEEN k.away_from AND k.resumed_at
        AND k.t < k.resumed_at + interval '15 minutes', false)
      OR COALESCE(s.via_proxy AND a.timeout_at BETWEEN k.via_away_from AND k.via_resumed_at
        AND k.t < k.via_resumed_at + interval '15 minutes', false)))
ORDER BY a.timeout_at LIMIT $2
