-- Whether an unknown effect is still asked about: a question is left, or an answer on its way. No
-- row: its tool has no probe.
-- Lock: the session's lock is held. Index: primary keys.
SELECT
  CASE WHEN e.probed_at >= COALESCE(e.lost_at, e.executed_at) THEN e.probe_count ELSE 0 END < $4
  OR e.probed_at > clock_timestamp() - $5 * interval '1 millisecond'
FROM undolog_effect_log e
JOIN undolog_tool_registry t ON t.tool_id = e.tool_id AND t.org_id = e.org_id
WHERE e.effect_id = $1 AND e.executed_at = $2 AND e.org_id = $3 AND e.state = 'unknown'
  AND t.probe IS NOT NULL
