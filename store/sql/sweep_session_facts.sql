-- What decides whether a session that looks lost is lost.
-- Lock: the session's lock is held. Index: idx_undolog_effect_log_session of the session's months.
SELECT
  undolog_lease_over($4, $5, $6, $7) AS is_over,
  (SELECT max(e.lease_renewed_at + e.lease_ms * interval '1 millisecond')
   FROM undolog_effect_log e
   WHERE e.session_id = $1 AND e.org_id = $2 AND e.executed_at BETWEEN $3 AND $8
     AND (e.state = 'executing' OR (e.state = 'approved' AND e.lease_ms IS NOT NULL))
     AND NOT undolog_lease_over(e.lease_renewed_at, e.lease_ms, $6, $7)) AS live_grant_until,
  EXISTS (
    SELECT FROM undolog_effect_log e
    WHERE e.session_id = $1 AND e.org_id = $2 AND e.executed_at BETWEEN $3 AND $8
      AND e.state = 'unknown') AS has_unknown,
  EXISTS (
    SELECT FROM undolog_effect_log e
    WHERE e.session_id = $1 AND e.org_id = $2 AND e.executed_at BETWEEN $3 AND $8
      AND e.state IN ('pending', 'approved', 'executing', 'unknown')) AS has_open
