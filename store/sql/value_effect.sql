-- Reads one effect by its id as it is shown, within the times that the id allows ($3, $4).
-- Promise: only a row of the organisation and, when a principal is given ($5), only of its own
-- session. Lock: none. Index: primary key of the partition.
SELECT e.effect_id, e.session_id, e.tool_id, e.tool_name, e.tool_version, e.tier::text AS tier,
  e.step_index, e.step_key, e.call_signature::text AS call_signature,
  e.args_snapshot::text AS args_text, e.args_snapshot_raw AS args_raw,
  e.result_snapshot::text AS result_text, e.result_snapshot_raw AS result_raw,
  e.compensation_args::text AS compensation_text, e.compensation_args_raw AS compensation_raw,
  e.state::text AS state, e.attempt, COALESCE(e.position, e.asked_position) AS position, e.outcome,
  e.error, e.error_raw, e.duration_ms, e.executed_at, e.committed_at, e.compensated_at,
  e.lease_renewed_at + e.lease_ms * interval '1 millisecond' AS lease_expires_at, e.replay_count,
  e.approval_request_id, 1::bigint AS matched
FROM undolog_effect_log e
JOIN undolog_sessions s ON s.session_id = e.session_id AND s.org_id = $1
WHERE e.org_id = $1 AND e.effect_id = $2 AND e.executed_at >= $3 AND e.executed_at < $4
  AND ($5::text IS NULL OR s.principal = $5)
