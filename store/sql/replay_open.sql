-- The calls of a session that have no result to be replayed and must not run as another call, by step.
-- Promise: only rows of the organisation and session; nothing of it lies outside its times ($3,
-- $4), which prunes the other partitions. Lock: none. Index: idx_undolog_effect_log_session.
SELECT effect_id, step_index, step_key, tool_name, call_signature::text AS call_signature,
  state::text AS state
FROM undolog_effect_log
WHERE org_id = $1 AND session_id = $2 AND executed_at BETWEEN $3 AND $4
  AND (state IN ('pending', 'approved', 'executing', 'unknown', 'rejected')
    OR (state = 'failed' AND outcome = 'maybe_applied'))
ORDER BY step_index, effect_id
