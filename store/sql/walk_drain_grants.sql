-- Live grants in scope of a drain whose lease is over.
-- Promise: a bounded number; the one predicate of every expiry decides. Lock: the session's lock is
-- held. Index: idx_undolog_effect_log_session of the session's months.
SELECT e.effect_id
FROM undolog_effect_log e
WHERE e.session_id = $1 AND e.org_id = $2 AND e.executed_at BETWEEN $3 AND $7 AND e.position >= $4
  AND (e.state = 'executing' OR (e.state = 'approved' AND e.lease_ms IS NOT NULL))
  AND undolog_lease_over(e.lease_renewed_at, e.lease_ms, $5, $6)
ORDER BY e.position DESC LIMIT 500
