-- The session's last calls ($5 of them), oldest first, for an approver's eyes: no arguments, no results.
-- Lock: the session's lock is held. Index: idx_undolog_effect_log_session of the session's months.
SELECT COALESCE(jsonb_agg(c.call ORDER BY c.step_index, c.executed_at), '[]'::jsonb)
FROM (
  SELECT e.step_index, e.executed_at, jsonb_build_object('effect_id', e.effect_id,
    'step_index', e.step_index, 'tool_name', e.tool_name, 'tier', e.tier, 'state', e.state) AS call
  FROM undolog_effect_log e
  WHERE e.session_id = $1 AND e.org_id = $2 AND e.executed_at BETWEEN $3 AND $4
  ORDER BY e.step_index DESC, e.executed_at DESC
  LIMIT $5
) c
