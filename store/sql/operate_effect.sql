-- Reads one effect of a session as it is shown.
-- Promise: only a row of the organisation; nothing of the session lies
-- outside its times ($3, $5).
-- Lock: the session's lock is held. Index: idx_undolog_effect_log_session.
SELECT effect_id, session_id, tool_id, tool_name, tool_version, tier::text AS tier, step_index,
  step_key, call_signature::text AS call_signature, args_snapshot::text AS args_text,
  args_snapshot_raw AS args_raw, result_snapshot::text AS result_text,
  result_snapshot_raw AS result_raw, compensation_args::text AS compensation_text,
  compensation_args_raw AS compensation_raw, state::text AS state, attempt,
  COALESCE(position, asked_position) AS position, outcome, error, error_raw, duration_ms,
  executed_at, committed_at, compensated_at,
  lease_renewed_at + lease_ms * interval '1 millisecond' AS lease_expires_at, replay_count,
  approval_request_id, 1::bigint AS matched
FROM undolog_effect_log
WHERE org_id = $1 AND session_id = $2 AND executed_at BETWEEN $3 AND $5 AND effect_id = $4
