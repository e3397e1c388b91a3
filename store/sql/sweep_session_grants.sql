-- Live grants of one session whose lease is over.
-- Promise: a bounded number. Lock: the session's lock is held.
-- Index: idx_undolog_effect_log_session of the session's months.
SELECT e.effect_id
FROM undolog_effect_log e
WHERE e.session_id = $1 AND e.org_id = $2 AND e.executed_at BETWEEN $3 AND $7
  AND (e.state = 'executing' OR (e.state = 'approved' AND e.lease_ms IS NOT NULL))
  AND undolog_lease_over(e.lease_renewed_at, e.lease_ms, $4, $5)
LIMIT $6
