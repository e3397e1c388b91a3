-- The effects of a session with every undo entry, for a plan. An entry's position is its own: a
-- late one stands above its effect's.
-- Lock: the session's lock is held. Index: idx_undolog_effect_log_session of the session's months
-- and undolog_undo_stack_session_position.
SELECT e.effect_id, u.undo_id, COALESCE(u.stack_position, e.position) AS position,
  e.asked_position, e.step_index, e.tier::text AS tier, e.state::text AS state, e.outcome,
  u.state AS entry_state,
  e.state = 'executing' OR (e.state = 'approved' AND e.lease_ms IS NOT NULL) AS is_granted,
  e.tool_name, u.compensation_fn, u.compensation_version, e.approval_request_id
FROM undolog_effect_log e
LEFT JOIN undolog_undo_stack u
  ON u.session_id = e.session_id AND u.effect_id = e.effect_id AND u.org_id = e.org_id
WHERE e.session_id = $1 AND e.org_id = $2 AND e.executed_at BETWEEN $3 AND $4
