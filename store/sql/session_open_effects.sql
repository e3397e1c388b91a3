-- Effects of a session whose outcome is open, at most twenty.
-- Lock: the session's lock is held. Index: idx_undolog_effect_log_session of the session's months.
SELECT effect_id FROM undolog_effect_log
WHERE session_id = $1 AND org_id = $2 AND executed_at BETWEEN $3 AND $5
  AND (state IN ('pending', 'approved', 'executing') OR (state = 'unknown' AND NOT $4))
ORDER BY step_index, effect_id
LIMIT 20
