-- Sessions of one organisation with a live grant whose lease is over.
-- Promise: a bounded number. Lock: none; each session is locked and judged again before anything
-- changes. Index: idx_undolog_effect_log_state (executing), idx_undolog_effect_log_approved.
SELECT DISTINCT e.session_id
FROM undolog_effect_log e
JOIN undolog_sessions s ON s.session_id = e.session_id AND s.org_id = e.org_id
WHERE e.org_id = $1
  AND (e.state = 'executing' OR (e.state = 'approved' AND e.lease_ms IS NOT NULL))
  AND undolog_lease_over(e.lease_renewed_at, e.lease_ms, s.via_proxy, clock_timestamp())
LIMIT $2
