-- Irreversible effects in scope of which nobody knows whether they happened, without an open dead
-- letter of their own.
-- Lock: the session's lock is held. Index: idx_undolog_effect_log_session of the session's months.
SELECT e.effect_id, e.tool_name, e.state::text AS state
FROM undolog_effect_log e
WHERE e.session_id = $1 AND e.org_id = $2 AND e.executed_at BETWEEN $3 AND $5 AND e.position >= $4
  AND e.tier = 'irreversible'
  AND (e.state = 'unknown' OR (e.state = 'failed' AND e.outcome = 'maybe_applied'))
  AND NOT EXISTS (
    SELECT FROM undolog_dead_letters d
    WHERE d.effect_id = e.effect_id AND d.undo_id IS NULL AND d.org_id = $2
      AND d.closed_at IS NULL)
ORDER BY e.position DESC LIMIT 500
