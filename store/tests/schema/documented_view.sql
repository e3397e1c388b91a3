-- The documented definition of undolog_active_sessions, under another name: once parsed by the same
-- server, both must read alike.
CREATE TEMP VIEW documented AS
SELECT
  s.session_id,
  s.org_id,
  s.project_id,
  s.agent_name,
  s.external_run_id,
  s.state,
  s.tool_calls_total,
  s.compensations_total,
  s.approvals_pending,
  s.started_at,
  p.name AS project_name,
  (SELECT json_build_object(
      'tool_name', el.tool_name,
      'tier', el.tier,
      'state', el.state,
      'executed_at', el.executed_at
   ) FROM undolog_effect_log el
   WHERE el.session_id = s.session_id
   ORDER BY el.executed_at DESC
   LIMIT 1) AS latest_effect
FROM undolog_sessions s
LEFT JOIN undolog_projects p ON p.project_id = s.project_id
WHERE s.state IN ('active', 'awaiting_approval', 'compensating');
