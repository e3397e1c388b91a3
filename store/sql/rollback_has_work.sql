-- Is there anything that a rollback of this scope has to wait for or to undo?
-- Lock: the session's lock is held. Index: undolog_undo_stack_session_position and
-- idx_undolog_effect_log_session of the session's months.
SELECT EXISTS (
    SELECT FROM undolog_undo_stack
    WHERE session_id = $1 AND org_id = $2 AND stack_position >= $4
      AND state IN ('pending', 'running', 'failed'))
  OR EXISTS (
    SELECT FROM undolog_effect_log
    WHERE session_id = $1 AND org_id = $2 AND executed_at BETWEEN $3 AND $5 AND position >= $4
      AND (state IN ('executing', 'unknown')
        OR (state = 'approved' AND lease_ms IS NOT NULL)
        OR (state = 'failed' AND outcome = 'maybe_applied' AND tier = 'irreversible')))
